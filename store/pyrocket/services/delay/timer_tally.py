"""The checksums of the timer index: counts and sums for each file, in `pyrocket/timers/tally`.

A row is written after the entries and before TIMER_QUEUE_OFFSET moves, so that for the offset in
the shared state the tally has exactly the entries below it (`formats.timer_tally`). If a file lacks
entries, or a file or the tally is missing or invalid, the index is damaged and is rebuilt from the
queue of the timer topic. A crash does not cause that: entries are flushed before the queue offset
is saved.

In this module, `timed` is such a queue offset.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.io import read_or_none
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.hashes import Hashes
from pyrocket.formats.timer_entry import TimerEntries
from pyrocket.formats.timer_tally import (
    MARK,
    TALLY,
    TALLY_BYTES,
    TallyRows,
    decode_tally,
    sealed,
    tally_rows,
)

TALLY_NAME = "tally"
TIMERS_DAMAGED = "TIMERS_DAMAGED"
HOUR_MS = 3_600_000
_FEW_ROWS = 1024
_NO_ROWS = np.zeros(0, TALLY)

Hours = dict[int, tuple[int, int]]
"""Start time of a file → number of its entries, and the sum of their checks."""


@dataclass(frozen=True)
class Tally:
    """The entries below the queue offset `timed`, by file."""

    timed: int
    hours: Hours

    def from_time(self, due_ms: int) -> list[int]:
        """Return the files that must exist if those before that time may be deleted."""
        return [
            start for start, (count, _) in self.hours.items() if count and start + HOUR_MS >= due_ms
        ]

    def checks_of(self, part: TimerEntries) -> Hashes:
        """Return the checks of valid entries that the tally counts."""
        return np.asarray(part["check"][part["queue_offset"] < self.timed])

    def check(self, start: int, checks: Iterable[Hashes]) -> None:
        """Raise StoreDamagedError unless these are the checks of all entries of a file.

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
    """The tally file of one store. Changing it requires the write lock, reading does not."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TALLY_NAME
        self._read: tuple[tuple[int, ...], int, TallyRows | None, Tally | None] | None = None

    def read(self, timed: int) -> Tally:
        """Return the tally of the entries below `timed`. Raises StoreDamagedError."""
        return self._known(timed)[1]

    def _known(self, timed: int) -> tuple[TallyRows, Tally]:
        if not timed:
            return _NO_ROWS, Tally(0, {})
        seen = self._signature()
        if self._read is None or self._read[:2] != (seen, timed):
            rows = decode_tally(read_or_none(self.path) or b"", timed)
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

        `saved` returns an earlier `timed` that must stay readable, and a due time before which
        files may be deleted. Raises StoreDamagedError, OSError.
        """
        rows, tally = self._known(before)
        if len(rows) > 4 * len(tally.hours) + _FEW_ROWS:
            rows = _shortened(rows, before, *saved())
            self._replace(rows)
        more = sealed(np.concatenate((rows, tally_rows(timed, hours))), len(rows))[len(rows) :]
        descriptor = io.open_file(self.path, os.O_RDWR | os.O_CREAT)
        try:
            io.write_at(descriptor, more.tobytes(), len(rows) * TALLY_BYTES)
        finally:
            os.close(descriptor)

    def write(self, timed: int, hours: Hours) -> None:
        """Replace the file, durably."""
        self._replace(sealed(tally_rows(timed, hours)))

    def remove(self) -> None:
        """Delete the file, before the index is cleared."""
        io.unlink(self.path)

    def _replace(self, rows: TallyRows) -> None:
        draft = self.path.with_name(f"{TALLY_NAME}.new")
        descriptor = io.open_file(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        try:
            io.write_at(descriptor, rows.tobytes(), 0)
            io.sync(descriptor)
        finally:
            os.close(descriptor)
        io.rename(draft, self.path)
        io.sync_directory(self.path.parent)

    def _signature(self) -> tuple[int, ...]:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return ()
        return now.st_ino, now.st_size, now.st_mtime_ns


def count_by_hour(entries: TimerEntries) -> Hours:
    """Return number and check sum of sealed entries without duplicates, by file."""
    starts = (entries["due"] - 1) // HOUR_MS * HOUR_MS
    names, of = np.unique(starts, return_inverse=True)
    sums = np.zeros(len(names), np.uint64)
    np.add.at(sums, of, entries["check"])
    counts = np.bincount(of, minlength=len(names))
    return dict(zip(names.tolist(), zip(counts.tolist(), sums.tolist(), strict=True), strict=True))


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
    names, of = np.unique(rows["start"], return_inverse=True)
    counts, sums = np.zeros(len(names), np.int64), np.zeros(len(names), np.uint64)
    np.add.at(counts, of, rows["count"])
    np.add.at(sums, of, rows["sum"])
    return dict(zip(names.tolist(), zip(counts.tolist(), sums.tolist(), strict=True), strict=True))


def _shortened(rows: TallyRows, timed: int, saved: int, due_ms: int) -> TallyRows:
    """Return fewer rows with the same sums for `timed` and, if that pays, for `saved`."""
    kept = np.flatnonzero((rows["start"] == MARK) & (rows["timed"] == saved))
    cut = int(kept[0]) + 1 if len(kept) else 0
    if cut < len(rows) // 2:
        cut, saved = len(rows), timed
    hours = hours_of(rows[:cut]).items()
    head = tally_rows(saved, {start: one for start, one in hours if start + HOUR_MS >= due_ms})
    return sealed(np.concatenate((head, rows[cut:])))


def _summed(checks: Hashes) -> tuple[int, int]:
    return len(checks), int(checks.sum(dtype=np.uint64))
