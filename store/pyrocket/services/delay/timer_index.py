"""The index of timers by due time: a file for each hour, `pyrocket/timers/<20 digits>`.

It can be rebuilt from the queue of the timer topic, which is the truth. A file grows by whole
entries (`formats.timer_entry`) in any order, and is deleted when all of them have been delivered
durably. A torn entry is overwritten by the next ones or ignored; an entry that was written twice
counts once. The tally (`timer_tally`) tells whether entries are missing.

A file is named by an epoch time in ms: it has the due times of one hour after that time. So a
second of the timer wheel, which includes its end but not its begin, is in one file.
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
"""Of the file of one hour."""

Chosen = Callable[[TimerEntries], npt.NDArray[np.bool_]]
"""Returns a mask of the entries that are chosen."""

Cursor = tuple[int, int]
"""Due time and queue offset of the last timer that was delivered or dropped: the read position."""


class TimerIndex:
    """The index files of one store. Changing them requires the write lock, reading does not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tally = TimerTally(folder)

    @property
    def is_there(self) -> bool:
        """Whether the index was created since the store was made, copied or repaired."""
        return self._folder.is_dir()

    def starts(self) -> list[int]:
        """Return the start times of all files, ascending."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(start for start in map(parse_file_name, names) if start is not None)

    def make(self) -> None:
        """Create the folder."""
        io.make_directory(self._folder)

    def add(self, entries: TimerEntries) -> None:
        """Append sealed entries to their files. Raises OSError; some may be written then."""
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
        """Return the length of a file in bytes, without a torn entry; 0 if it is missing."""
        try:
            length = self._path(start).stat().st_size
        except FileNotFoundError:
            return 0
        return length - length % ENTRY_BYTES

    def parts(self, start: int, position: int = 0) -> Iterator[TimerEntries]:
        """Yield the valid entries of a file from byte `position` on, some thousands at a time."""
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
        """Return the chosen entries of a file from byte `position` on.

        With a tally, raises StoreDamagedError if the file lacks entries; checked only if the whole
        file is read.
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
        """Raise StoreDamagedError if a file is missing; with `whole`, also if one lacks entries.

        Files with due times before `due_ms` may be deleted.
        """
        starts = self.starts()
        missing = sorted({*tally.from_time(due_ms)} - {*starts})
        if missing:
            raise index_damaged(f"files are missing, {missing[0]} among {len(missing)}")
        for start in starts if whole else ():
            if start + HOUR_MS >= due_ms:
                tally.check(start, map(tally.checks_of, self.parts(start)))

    def recount(self, timed: int) -> None:
        """Write the tally again, durably. The caller knows that the files are complete."""
        hours: Hours = {}
        for start in self.starts():
            found = self.chosen(start, lambda part: part["queue_offset"] < timed)
            hours = add_hours(hours, count_by_hour(sorted_unique(found)))
        self.make()
        self.tally.write(timed, hours)

    def erase(self, choose: Chosen, starts: Ints | list[int] | None = None) -> int:
        """Overwrite the chosen entries of all or some files with zeros; return their number.

        Durable only after `sync`.
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
        """Return the earliest due time after the cursor, NEVER for none.

        With a tally, raises StoreDamagedError if a file that is read lacks entries.
        """
        for start in self.starts():
            if start + HOUR_MS >= cursor[0]:
                found = self.chosen(start, lambda part: are_after(part, cursor), tally=tally)
                dues = found["due"]
                if len(dues):
                    return int(dues.min())
        return NEVER

    def remove_before(self, due_ms: int) -> None:
        """Delete the files whose due times are all before that time."""
        for start in self.starts():
            if start + HOUR_MS < due_ms:
                io.unlink(self._path(start))

    def clear(self) -> None:
        """Delete all files."""
        self.tally.remove()
        for start in self.starts():
            io.unlink(self._path(start))

    def sync(self) -> None:
        """Flush all files. Raises SyncError."""
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
            return  # Deleted meanwhile.
        try:
            io.sync(descriptor)
        except OSError as error:
            raise io.SyncError(*error.args) from error
        finally:
            os.close(descriptor)

    def _path(self, start: int) -> Path:
        return self._folder / file_name(start)


def are_after(entries: TimerEntries, cursor: Cursor) -> npt.NDArray[np.bool_]:
    """Return which entries are after the cursor."""
    due, at = cursor
    same = (entries["due"] == due) & (entries["queue_offset"] > at)
    return np.asarray((entries["due"] > due) | same)


def sorted_unique(entries: TimerEntries) -> TimerEntries:
    """Return sealed entries by due time and queue offset, without duplicates."""
    order = np.lexsort((entries["queue_offset"], entries["due"]))
    checks = entries["check"][order]
    first = np.append(True, checks[1:] != checks[:-1])[: len(entries)]
    return entries[order[first]]
