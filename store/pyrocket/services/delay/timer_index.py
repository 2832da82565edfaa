"""The index of timers by due time: a file for each hour, `pyrocket/timers/<20 digits>`.

The index can be rebuilt from the queue of the timer topic. Entries (`formats.timer_entry`) are
appended to a file in any order, and the file is deleted when all its timers have been delivered
durably. A torn entry is overwritten by the next entries or ignored; a duplicate entry is counted
once.

The tally, `pyrocket/timers/tally`, has the number of entries and the sum of their checks for each
file. A row is written after the entries and before TIMER_QUEUE_OFFSET moves. Therefore the tally
covers exactly the entries below the queue offset in the shared state (`formats.timer_entry`). If a
file lacks entries, or a file or the tally is missing or invalid, the index is damaged and is
rebuilt from the queue. A crash does not damage the index: entries are flushed before the queue
offset is saved.

A file is named after an epoch time in ms and covers the due times of one hour after it. A second of
the timer wheel excludes its start and includes its end, as these hours do, so each second is in one
file.

In this module, `timed` is a queue offset of the timer topic.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyrocket.disk import io
from pyrocket.disk.file_queue import file_name, parse_file_name
from pyrocket.disk.shared_state import NEVER
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, runs_of
from pyrocket.formats.hashes import Hashes
from pyrocket.formats.timer_entry import (
    ENTRY_BYTES,
    MARK,
    TALLY,
    TALLY_BYTES,
    TIMER_ENTRY,
    TallyRows,
    TimerEntries,
    decode_tally,
    sealed,
    sound,
    tally_rows,
)
from pyrocket.metadata.json_table import file_stamp

_ENTRIES_AT_ONCE = 32_768
_MAX_BUCKET_BYTES = ENTRY_BYTES * 200_000_000
"""Maximum size of the file of one hour."""

Chosen = Callable[[TimerEntries], npt.NDArray[np.bool_]]
"""Returns a mask of the chosen entries."""

Cursor = tuple[int, int]
"""The read position: due time and queue offset of the last timer that was delivered or dropped."""

TALLY_NAME = "tally"
TIMERS_DAMAGED = "TIMERS_DAMAGED"
HOUR_MS = 3_600_000
_FEW_ROWS = 1024
_NO_ROWS = np.zeros(0, TALLY)

Hours = dict[int, tuple[int, int]]
"""Start time of a file → number of its entries and sum of their checks."""


@dataclass(frozen=True)
class Tally:
    """The entries below the queue offset `timed`, by file."""

    timed: int
    hours: Hours

    def checks_of(self, part: TimerEntries) -> Hashes:
        """Return the checks of valid entries that the tally counts."""
        return np.asarray(part["check"][part["queue_offset"] < self.timed])

    def check(self, start: int, checks: Iterable[Hashes]) -> None:
        """Raise StoreDamagedError unless `checks` are the checks of all entries of a file.

        Duplicates are valid: after a crash the same entries are written again.
        """
        known = np.concatenate([np.zeros(0, np.uint64), *checks])
        wanted = self.hours.get(start, (0, 0))
        if _summed(known) != wanted and _summed(np.unique(known)) != wanted:
            raise index_damaged(f"file {start} lacks entries")


def index_damaged(what: str) -> StoreDamagedError:
    """Return the error for a damaged index."""
    return StoreDamagedError(
        f"the index of timers in pyrocket/timers is damaged: {what}.",
        remedy="Open the store for writing: the index is rebuilt from the log.",
        code=TIMERS_DAMAGED,
    )


class TimerTally:
    """The tally file of one store. Writing requires the write lock, reading does not."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TALLY_NAME
        self._read: tuple[object, int, TallyRows | None, Tally | None] | None = None

    def read(self, timed: int) -> Tally:
        """Return the tally of the entries below `timed`. Raises StoreDamagedError."""
        return self._known(timed)[1]

    def _known(self, timed: int) -> tuple[TallyRows, Tally]:
        if not timed:
            return _NO_ROWS, Tally(0, {})
        seen = file_stamp(self.path)
        if self._read is None or self._read[:2] != (seen, timed):
            rows = decode_tally(io.read_or_none(self.path) or b"", timed)
            tally = None if rows is None else Tally(timed, hours_of(rows))
            self._read = seen, timed, rows, tally
        rows, tally = self._read[2:]
        if rows is None or tally is None:
            raise index_damaged("its tally is missing or invalid")
        return rows, tally

    def add(
        self, before: int, timed: int, hours: Hours, saved: Callable[[], tuple[int, int]]
    ) -> None:
        """Add the entries of the queue offsets [before, timed).

        `saved` returns an earlier `timed` whose tally must stay readable, and a due time before
        which files may be deleted. Raises StoreDamagedError, OSError.
        """
        rows, tally = self._known(before)
        if len(rows) > 4 * len(tally.hours) + _FEW_ROWS:
            rows = _shortened(rows, before, *saved())
            self._replace(rows)
        more = sealed(np.concatenate((rows, tally_rows(timed, hours))), len(rows))[len(rows) :]
        with io.opened(self.path, os.O_RDWR | os.O_CREAT) as descriptor:
            io.write_at(descriptor, more.tobytes(), len(rows) * TALLY_BYTES)

    def write(self, timed: int, hours: Hours) -> None:
        """Replace the file, durably."""
        self._replace(sealed(tally_rows(timed, hours)))

    def remove(self) -> None:
        """Delete the file, before the index is cleared."""
        io.unlink(self.path)

    def _replace(self, rows: TallyRows) -> None:
        draft = self.path.with_name(f"{TALLY_NAME}.new")
        with io.opened(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as descriptor:
            io.write_at(descriptor, rows.tobytes(), 0)
            io.sync(descriptor)
        io.rename(draft, self.path)
        io.sync_directory(self.path.parent)


def count_by_hour(entries: TimerEntries) -> Hours:
    """Return the number and the sum of checks of sealed entries by file, without duplicates."""
    return _by_start((entries["due"] - 1) // HOUR_MS * HOUR_MS, 1, entries["check"])


def add_hours(first: Hours, second: Hours) -> Hours:
    """Return the sums of two counts."""
    all_of = dict(first)
    for start, (count, total) in second.items():
        known = all_of.get(start, (0, 0))
        all_of[start] = known[0] + count, (known[1] + total) % 2**64
    return all_of


def hours_of(rows: TallyRows) -> Hours:
    """Return the sums of all rows."""
    rows = rows[rows["start"] != MARK]
    return _by_start(rows["start"], rows["count"], rows["sum"])


def _by_start(starts: Ints, count: Ints | int, checks: Hashes) -> Hours:
    names, of = np.unique(starts, return_inverse=True)
    counts, sums = np.zeros(len(names), np.int64), np.zeros(len(names), np.uint64)
    np.add.at(counts, of, count)
    np.add.at(sums, of, checks)
    return dict(zip(names.tolist(), zip(counts.tolist(), sums.tolist(), strict=True), strict=True))


def _shortened(rows: TallyRows, timed: int, saved: int, due_ms: int) -> TallyRows:
    """Return fewer rows with the same sums for `timed` and, if that pays, for `saved`."""
    kept = np.flatnonzero((rows["start"] == MARK) & (rows["timed"] == saved))
    cut = int(kept[0]) + 1 if len(kept) else 0
    if cut < len(rows) // 2:
        cut, saved = len(rows), timed
    hours = hours_of(rows[:cut]).items()
    head = tally_rows(saved, {start: sums for start, sums in hours if start + HOUR_MS >= due_ms})
    return sealed(np.concatenate((head, rows[cut:])))


def _summed(checks: Hashes) -> tuple[int, int]:
    return len(checks), int(checks.sum(dtype=np.uint64))


class TimerIndex:
    """The index files of one store. Writing requires the write lock, reading does not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tally = TimerTally(folder)

    @property
    def is_there(self) -> bool:
        """Whether the index exists; it is missing in a new, copied or repaired store."""
        return self._folder.is_dir()

    def starts(self) -> list[int]:
        """Return the start times of all files, ascending."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(start for start in map(parse_file_name, names) if start is not None)

    def make(self) -> None:
        io.make_directory(self._folder)

    def add(self, entries: TimerEntries) -> None:
        """Append sealed entries to their files. After an OSError, some may have been written."""
        self.make()
        hours = (entries["due"] - 1) // HOUR_MS
        order = np.argsort(hours, kind="stable")
        hours, entries = hours[order], entries[order]
        for first, last in runs_of(hours):
            self._append(int(hours[first]) * HOUR_MS, entries[first:last])

    def _append(self, start: int, entries: TimerEntries) -> None:
        with io.opened(self._path(start), os.O_RDWR | os.O_CREAT) as descriptor:
            length = os.fstat(descriptor).st_size
            data = entries.astype(TIMER_ENTRY, copy=False).tobytes()
            io.write_at(descriptor, data, length - length % ENTRY_BYTES)

    def length(self, start: int) -> int:
        """Return the length of a file in bytes, without a torn entry; 0 if it is missing."""
        try:
            length = self._path(start).stat().st_size
        except FileNotFoundError:
            return 0
        return length - length % ENTRY_BYTES

    def parts(self, start: int, position: int = 0) -> Iterator[TimerEntries]:
        """Yield the valid entries of a file, starting at `position`, a few thousand at a time."""
        path = self._path(start)
        with suppress(FileNotFoundError), io.opened(path, os.O_RDONLY) as descriptor:
            io.check_file_size(path, os.fstat(descriptor).st_size, _MAX_BUCKET_BYTES)
            while data := os.pread(descriptor, _ENTRIES_AT_ONCE * ENTRY_BYTES, position):
                count = len(data) // ENTRY_BYTES
                yield sound(np.frombuffer(data, TIMER_ENTRY, count))
                position += max(count, 1) * ENTRY_BYTES

    def chosen(
        self, start: int, choose: Chosen, position: int = 0, tally: Tally | None = None
    ) -> TimerEntries:
        """Return the chosen entries of a file, starting at byte `position`.

        With a tally and `position` 0, raises StoreDamagedError if the file lacks entries.
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
        """Raise StoreDamagedError if a file is missing; with `whole`, also if a file lacks entries.

        Files with due times before `due_ms` may be deleted.
        """
        starts = self.starts()
        wanted = {at for at, (count, _) in tally.hours.items() if count and at + HOUR_MS >= due_ms}
        missing = sorted(wanted - {*starts})
        if missing:
            raise index_damaged(f"files are missing, {missing[0]} among {len(missing)}")
        for start in starts if whole else ():
            if start + HOUR_MS >= due_ms:
                tally.check(start, map(tally.checks_of, self.parts(start)))

    def recount(self, timed: int) -> None:
        """Rewrite the tally durably from the files, which must be complete."""
        hours: Hours = {}
        for start in self.starts():
            entries = self.chosen(start, lambda part: part["queue_offset"] < timed)
            hours = add_hours(hours, count_by_hour(sorted_unique(entries)))
        self.make()
        self.tally.write(timed, hours)

    def erase(self, choose: Chosen) -> int:
        """Overwrite chosen entries with zeros; return their number. Durable only after `sync`."""
        return sum(self._erase(start, choose) for start in self.starts())

    def _erase(self, start: int, choose: Chosen) -> int:
        path, erased, position = self._path(start), 0, 0
        with io.opened(path, os.O_RDWR) as descriptor:
            io.check_file_size(path, os.fstat(descriptor).st_size, _MAX_BUCKET_BYTES)
            while data := os.pread(descriptor, _ENTRIES_AT_ONCE * ENTRY_BYTES, position):
                entries = np.frombuffer(data, TIMER_ENTRY, len(data) // ENTRY_BYTES).copy()
                meant = choose(entries) & (entries["check"] != 0)
                if meant.any():
                    entries[meant] = np.zeros(1, TIMER_ENTRY)[0]
                    io.write_at(descriptor, entries.tobytes(), position)
                    erased += int(np.count_nonzero(meant))
                position += len(data)
        return erased

    def first_due(self, cursor: Cursor, tally: Tally | None = None) -> int:
        """Return the first due time after the cursor, or NEVER; a tally checks the files read."""
        for start in self.starts():
            if start + HOUR_MS >= cursor[0]:
                entries = self.chosen(start, lambda part: are_after(part, cursor), tally=tally)
                dues = entries["due"]
                if len(dues):
                    return int(dues.min())
        return NEVER

    def remove_before(self, due_ms: int) -> None:
        """Delete the files whose due times are all before `due_ms`."""
        for start in self.starts():
            if start + HOUR_MS < due_ms:
                io.unlink(self._path(start))

    def clear(self) -> None:
        self.tally.remove()
        for start in self.starts():
            io.unlink(self._path(start))

    def sync(self) -> None:
        """Flush all files. Raises SyncError."""
        if not self.is_there:
            return
        for start in self.starts():
            _sync(self._path(start))
        _sync(self.tally.path)
        io.sync_directory(self._folder)

    def _path(self, start: int) -> Path:
        return self._folder / file_name(start)


def _sync(path: Path) -> None:
    # The file may have been deleted in the meantime.
    with suppress(FileNotFoundError), io.opened(path, os.O_RDONLY) as descriptor:
        io.sync_or_fail(descriptor)


def are_after(entries: TimerEntries, cursor: Cursor) -> npt.NDArray[np.bool_]:
    """Return a mask of the entries after the cursor."""
    due, at = cursor
    same = (entries["due"] == due) & (entries["queue_offset"] > at)
    return np.asarray((entries["due"] > due) | same)


def sorted_unique(entries: TimerEntries) -> TimerEntries:
    """Return sealed entries by due time and queue offset, without duplicates."""
    order = np.lexsort((entries["queue_offset"], entries["due"]))
    checks = entries["check"][order]
    first = np.append(True, checks[1:] != checks[:-1])[: len(entries)]
    return entries[order[first]]
