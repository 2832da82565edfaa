"""What the timer buckets have to hold: counts and sums by bucket, in `pyrocket/timers/tally`.

Written behind the buckets and before `timed` moves, so that for the words' `timed` it says exactly
what has been taken in (`formats.timer_tally`). A bucket that holds less, a missing one, and a tally
that cannot be read mean damage: all is built anew from the timer topic's queue, which is the truth.
No crash leaves that behind: what was saved as taken in was made durable before.
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
"""Bucket → how many entries, and the sum of their checks."""


@dataclass(frozen=True)
class Tally:
    """What has been taken in below the queue offset `timed`, by bucket."""

    timed: int
    hours: Hours

    def from_time(self, due_ms: int) -> list[int]:
        """Return the buckets that have to be there if all before that time may have gone."""
        return [
            start for start, (count, _) in self.hours.items() if count and start + HOUR_MS >= due_ms
        ]

    def checks_of(self, part: TimerEntries) -> Hashes:
        """Return the checks of those of sound entries that count."""
        return np.asarray(part["check"][part["queue_offset"] < self.timed])

    def check(self, start: int, checks: Iterable[Hashes]) -> None:
        """Raise StoreDamagedError unless these checks are those of all that a bucket had.

        More than once is fine: whoever takes in after another died writes them again.
        """
        known = np.concatenate([np.zeros(0, np.uint64), *checks])
        wanted = self.hours.get(start, (0, 0))
        if _summed(known) != wanted and _summed(np.unique(known)) != wanted:
            raise index_damaged(f"bucket {start}")


def index_damaged(what: str) -> StoreDamagedError:
    """Return the error for an index of timers that does not hold what it should."""
    return StoreDamagedError(
        f"the index of timers in pyrocket/timers is damaged: {what} lacks entries.",
        remedy="Open the store for writing: it is built anew from the log.",
        code=TIMERS_DAMAGED,
    )


class TimerTally:
    """The file of one store. Whoever changes it has the turn; anybody may read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TALLY_NAME
        self._read: tuple[tuple[int, ...], int, TallyRows | None, Tally | None] | None = None

    def read(self, timed: int) -> Tally:
        """Return what is taken in below `timed`. Raises StoreDamagedError."""
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
            raise index_damaged("the tally")
        return rows, tally

    def add(
        self, before: int, timed: int, hours: Hours, saved: Callable[[], tuple[int, int]]
    ) -> None:
        """Note what was taken in from `before` to `timed`.

        `saved` returns a `timed` that is still to be known, and up to when buckets may have gone.
        Raises StoreDamagedError, OSError.
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
        """Have it say this and nothing else, durably."""
        self._replace(sealed(tally_rows(timed, hours)))

    def remove(self) -> None:
        """Have it say nothing: the buckets are about to be others."""
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
    """Return count and sum of sealed entries, none of them twice, by bucket."""
    starts = (entries["due"] - 1) // HOUR_MS * HOUR_MS
    names, of = np.unique(starts, return_inverse=True)
    sums = np.zeros(len(names), np.uint64)
    np.add.at(sums, of, entries["check"])
    counts = np.bincount(of, minlength=len(names))
    return dict(zip(names.tolist(), zip(counts.tolist(), sums.tolist(), strict=True), strict=True))


def add_hours(first: Hours, second: Hours) -> Hours:
    """Return the sums of both."""
    all_of = dict(first)
    for start, (count, total) in second.items():
        known = all_of.get(start, (0, 0))
        all_of[start] = known[0] + count, (known[1] + total) % 2**64
    return all_of


def hours_of(rows: TallyRows) -> Hours:
    """Return what the rows say together."""
    rows = rows[rows["start"] != MARK]
    names, of = np.unique(rows["start"], return_inverse=True)
    counts, sums = np.zeros(len(names), np.int64), np.zeros(len(names), np.uint64)
    np.add.at(counts, of, rows["count"])
    np.add.at(sums, of, rows["sum"])
    return dict(zip(names.tolist(), zip(counts.tolist(), sums.tolist(), strict=True), strict=True))


def _shortened(rows: TallyRows, timed: int, saved: int, due_ms: int) -> TallyRows:
    """Return fewer rows that say the same for `timed` and, where that is worth it, for `saved`."""
    kept = np.flatnonzero((rows["start"] == MARK) & (rows["timed"] == saved))
    cut = int(kept[0]) + 1 if len(kept) else 0
    if cut < len(rows) // 2:
        cut, saved = len(rows), timed
    hours = hours_of(rows[:cut]).items()
    head = tally_rows(saved, {start: one for start, one in hours if start + HOUR_MS >= due_ms})
    return sealed(np.concatenate((head, rows[cut:])))


def _summed(checks: Hashes) -> tuple[int, int]:
    return len(checks), int(checks.sum(dtype=np.uint64))
