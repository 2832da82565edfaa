"""Which timers are due when: one file for each hour of due times, `pyrocket/timers/<20 digits>`.

An index of the timer topic's queue, which alone says what there is. Files grow by whole entries
(`formats.timer_entry`), in no order; a file is removed when all it holds has been delivered,
durably. An entry that was not written whole is overwritten by the next ones or does not count, one
that was written twice counts once. What they have to hold, their tally says (`index.timer_tally`).

A file's name is the epoch ms behind which its due times begin, so that a slot, a second with its
end, lies in one file.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyrocket.disk import io
from pyrocket.disk.io import check_file_size
from pyrocket.disk.layout import file_name, parse_file_name
from pyrocket.disk.shared_state import NEVER
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.timer_entry import ENTRY_BYTES, TIMER_ENTRY, TimerEntries, sound
from pyrocket.services.delay.timer_tally import (
    HOUR_MS,
    Hours,
    Tally,
    TimerTally,
    add_hours,
    count_by_hour,
    index_damaged,
)

_ENTRIES_AT_ONCE = 32_768
_MAX_BUCKET_BYTES = ENTRY_BYTES * 200_000_000
"""Of one hour."""

Chosen = Callable[[TimerEntries], npt.NDArray[np.bool_]]
"""Says of each entry whether it is meant."""

Cursor = tuple[int, int]
"""Due time and queue offset of the last timer that was delivered or dropped."""


class TimerIndex:
    """The files of one store. Whoever changes them has the turn; anybody may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tally = TimerTally(folder)

    @property
    def is_there(self) -> bool:
        """Whether there has been a bucket since the store was made, copied or repaired."""
        return self._folder.is_dir()

    def starts(self) -> list[int]:
        """Return the names of the files as numbers, ascending."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(start for start in map(parse_file_name, names) if start is not None)

    def make(self) -> None:
        """Make the folder."""
        io.make_directory(self._folder)

    def add(self, entries: TimerEntries) -> None:
        """Write sealed entries where they belong. Raises OSError: some may have been written."""
        self.make()
        hours = (entries["due"] - 1) // HOUR_MS
        order = np.argsort(hours, kind="stable")
        hours, entries = hours[order], entries[order]
        cuts = np.flatnonzero(np.diff(hours)) + 1
        for part, first in zip(np.split(entries, cuts), [0, *cuts.tolist()], strict=True):
            if len(part):
                self._append(int(hours[first]) * HOUR_MS, part)

    def _append(self, start: int, entries: TimerEntries) -> None:
        descriptor = io.open_file(self._path(start), os.O_RDWR | os.O_CREAT)
        try:
            length = os.fstat(descriptor).st_size
            data = entries.astype(TIMER_ENTRY, copy=False).tobytes()
            io.write_at(descriptor, data, length - length % ENTRY_BYTES)
        finally:
            os.close(descriptor)

    def length(self, start: int) -> int:
        """Return how many bytes of whole entries a file has; 0 for none."""
        try:
            length = self._path(start).stat().st_size
        except FileNotFoundError:
            return 0
        return length - length % ENTRY_BYTES

    def parts(self, start: int, position: int = 0) -> Iterator[TimerEntries]:
        """Yield the sound entries of a file from byte `position` on, some thousands at a time."""
        try:
            descriptor = io.open_file(self._path(start), os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            check_file_size(self._path(start), os.fstat(descriptor).st_size, _MAX_BUCKET_BYTES)
            while data := os.pread(descriptor, _ENTRIES_AT_ONCE * ENTRY_BYTES, position):
                count = len(data) // ENTRY_BYTES
                yield sound(np.frombuffer(data, TIMER_ENTRY, count))
                position += max(count, 1) * ENTRY_BYTES
        finally:
            os.close(descriptor)

    def chosen(
        self, start: int, choose: Chosen, position: int = 0, tally: Tally | None = None
    ) -> TimerEntries:
        """Return the entries of a file, from a byte on, that are meant.

        Raises StoreDamagedError where it lacks what it should hold; that is told of whole files.
        """
        parts, known = [np.zeros(0, TIMER_ENTRY)], []
        for part in self.parts(start, position):
            parts.append(part[choose(part)])
            if tally is not None:
                known.append(tally.checks_of(part))
        if tally is not None and not position:
            tally.check(start, known)
        return np.concatenate(parts)

    def check(self, tally: Tally, due_ms: int, *, whole: bool = False) -> None:
        """Raise StoreDamagedError if a file that has to be there is missing.

        Files of what was due before `due_ms` may have gone. With `whole`, all is read.
        """
        starts = self.starts()
        missing = sorted({*tally.from_time(due_ms)} - {*starts})
        if missing:
            raise index_damaged(f"{len(missing)} missing buckets, bucket {missing[0]} among them,")
        for start in starts if whole else ():
            if start + HOUR_MS >= due_ms:
                tally.check(start, map(tally.checks_of, self.parts(start)))

    def recount(self, timed: int) -> None:
        """Have the tally say what is there, durably; only for whoever knows that it is right."""
        hours: Hours = {}
        for start in self.starts():
            found = self.chosen(start, lambda part: part["queue_offset"] < timed)
            hours = add_hours(hours, count_by_hour(sorted_unique(found)))
        self.make()
        self.tally.write(timed, hours)

    def erase(self, choose: Chosen, starts: Ints | list[int] | None = None) -> int:
        """Overwrite with zeros what is meant, in all files or some; return how many it was.

        Not durable: `sync`.
        """
        return sum(self._erase(int(start), choose) for start in starts or self.starts())

    def _erase(self, start: int, choose: Chosen) -> int:
        descriptor = io.open_file(self._path(start), os.O_RDWR)
        erased = position = 0
        try:
            check_file_size(self._path(start), os.fstat(descriptor).st_size, _MAX_BUCKET_BYTES)
            while data := os.pread(descriptor, _ENTRIES_AT_ONCE * ENTRY_BYTES, position):
                entries = np.frombuffer(data, TIMER_ENTRY, len(data) // ENTRY_BYTES).copy()
                meant = choose(entries) & (entries["check"] != 0)
                if meant.any():
                    entries[meant] = np.zeros(1, TIMER_ENTRY)[0]
                    io.write_at(descriptor, entries.tobytes(), position)
                    erased += int(np.count_nonzero(meant))
                position += len(data)
        finally:
            os.close(descriptor)
        return erased

    def first_due(self, cursor: Cursor, tally: Tally | None = None) -> int:
        """Return the earliest due time behind the cursor; NEVER without one.

        Raises StoreDamagedError if files on the way lack what the tally says.
        """
        for start in self.starts():
            if start + HOUR_MS >= cursor[0]:
                found = self.chosen(start, lambda part: are_after(part, cursor), tally=tally)
                dues = found["due"]
                if len(dues):
                    return int(dues.min())
        return NEVER

    def remove_before(self, due_ms: int) -> None:
        """Remove the files of which all was due before that time."""
        for start in self.starts():
            if start + HOUR_MS < due_ms:
                io.unlink(self._path(start))

    def clear(self) -> None:
        """Remove all files; only for whoever has the turn."""
        self.tally.remove()
        for start in self.starts():
            io.unlink(self._path(start))

    def sync(self) -> None:
        """Make all of it durable. Raises SyncError."""
        if not self.is_there:
            return
        for start in self.starts():
            self._sync(self._path(start))
        self._sync(self.tally.path)
        io.sync_directory(self._folder)

    def _sync(self, path: Path) -> None:
        try:
            descriptor = io.open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return  # Removed meanwhile.
        try:
            io.sync(descriptor)
        except OSError as error:
            raise io.SyncError(*error.args) from error
        finally:
            os.close(descriptor)

    def _path(self, start: int) -> Path:
        return self._folder / file_name(start)


def are_after(entries: TimerEntries, cursor: Cursor) -> npt.NDArray[np.bool_]:
    """Return whether each entry is to come after the cursor."""
    due, at = cursor
    same = (entries["due"] == due) & (entries["queue_offset"] > at)
    return np.asarray((entries["due"] > due) | same)


def sorted_unique(entries: TimerEntries) -> TimerEntries:
    """Return sealed entries by due time and queue offset, none twice."""
    order = np.lexsort((entries["queue_offset"], entries["due"]))
    checks = entries["check"][order]
    first = np.append(True, checks[1:] != checks[:-1])[: len(entries)]
    return entries[order[first]]
