"""Reads pending timers from the index: all, the timers of one second, or the next due timers.

An index entry is pending unless the cursor has passed it, it was cancelled, or a copy replaced it.

`TimerWindow` keeps the timers of about the next minute in memory, however many are pending. The
window stays valid while the index only grows: of the entries that another process has added, only
the new ones are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pyrocket.disk.shared_state import (
    NEVER,
    STRUCTURE,
    TIMER_QUEUE_OFFSET,
    TIMER_READ_OFFSET,
    TIMER_READ_TIME,
    SharedState,
)
from pyrocket.formats.arrow_buffers import Bools
from pyrocket.formats.timer_entry import (
    CANCELS,
    SLOT_MS,
    TIMER_ENTRY,
    TimerEntries,
    places,
    slot_start,
)
from pyrocket.services.delay.timer_index import (
    HOUR_MS,
    Cursor,
    Tally,
    TimerIndex,
    are_after,
    sorted_unique,
)

WINDOW_MS = 60_000
_LONG_MS = 24 * HOUR_MS
_MAX_ENTRIES = 100_000
"""The window ends with the second in which it reaches this number of entries."""

_NOTHING = np.zeros(0, TIMER_ENTRY)


class PendingTimers:
    """Timers and cancellations by due time and queue offset.

    alive: mask of the entries to deliver. ahead: mask of the entries after the cursor. The entries
    include all entries of the cursor's second, even those before the cursor.
    """

    def __init__(self, parts: Iterable[TimerEntries], cursor: Cursor) -> None:
        self.entries = sorted_unique(np.concatenate([_NOTHING, *parts]))
        self.ahead = are_after(self.entries, cursor)
        self.alive = are_live(self.entries) & self.ahead

    @property
    def pending(self) -> TimerEntries:
        """The entries to deliver."""
        return self.entries[self.alive]


@dataclass(frozen=True)
class TimerProgress:
    """Timers are indexed up to `queue_offset`, and delivered up to `cursor`."""

    queue_offset: int
    cursor: Cursor

    @staticmethod
    def of(cursors: Mapping[int, int]) -> "TimerProgress":
        """Return the progress from the cursors of the shared state; missing cursors are 0."""
        cursor = cursors.get(TIMER_READ_TIME, 0), cursors.get(TIMER_READ_OFFSET, 0)
        return TimerProgress(cursors.get(TIMER_QUEUE_OFFSET, 0), cursor)


def read_pending(
    index: TimerIndex, progress: TimerProgress, more: Iterable[TimerEntries] = ()
) -> PendingTimers:
    """Return the pending timers of the index and of `more`. Raises StoreDamagedError."""
    low = slot_start(max(progress.cursor[0], 1))
    tally = index.tally.read(progress.queue_offset)
    index.check(tally, progress.cursor[0])
    parts = [
        index.chosen(
            start,
            lambda part: (part["due"] > low) & (part["queue_offset"] < progress.queue_offset),
            tally=tally,
        )
        for start in index.starts()
        if start + HOUR_MS > low
    ]
    return PendingTimers([*parts, *more], progress.cursor)


def read_second(index: TimerIndex, progress: TimerProgress, due_ms: int) -> PendingTimers:
    """Return the pending timers of one second, or of the cursor's second if that is later.

    Raises StoreDamagedError if the file of that hour lacks entries.
    """
    low = slot_start(max(progress.cursor[0], due_ms, 1))
    entries = index.chosen(
        low // HOUR_MS * HOUR_MS,
        lambda part: (part["due"] > low) & (part["due"] <= low + SLOT_MS),
        tally=index.tally.read(progress.queue_offset),
    )
    return PendingTimers([entries], progress.cursor)


def are_live(entries: TimerEntries) -> Bools:
    """Return which entries are not cancelled or replaced; needs all entries of their seconds."""
    copies = entries["copies"]
    alive = np.asarray(copies != CANCELS)
    if not copies.any():
        return alive
    named = places(entries)
    alive &= ~np.isin(named, named[copies == CANCELS])
    alive[_replaced(named, copies)] = False
    return alive


def _replaced(
    named: npt.NDArray[np.uint64], copies: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """Return the rows of entries that were replaced by a later copy."""
    rows = np.flatnonzero(np.isin(named, named[copies > 0]))
    rows = rows[np.lexsort((copies[rows], named[rows]))]
    names = named[rows]
    # The last row of each name is its newest copy.
    last = np.searchsorted(names, names, side="right") - 1
    return rows[copies[rows] < copies[rows][last]]


@dataclass(frozen=True)
class Due:
    """Due timers in order; `alive` is the mask of the timers to deliver."""

    entries: TimerEntries
    alive: Bools

    @property
    def last(self) -> Cursor:
        """The cursor after these timers are delivered."""
        return int(self.entries["due"][-1]), int(self.entries["queue_offset"][-1])


@dataclass
class _Window:
    """All entries with low < due <= high, and the number of bytes read from each file."""

    low: int = 0
    high: int = 0
    read: dict[int, int] = field(default_factory=dict)
    entries: TimerEntries = field(default_factory=_NOTHING.copy)
    alive: Bools = field(default_factory=lambda: np.zeros(0, bool))


class TimerWindow:
    """The window on a store's index; needs the write lock. Raises StoreDamagedError."""

    def __init__(self, index: TimerIndex) -> None:
        self._index = index
        self._window: _Window | None = None
        self._seen = -1, -1

    def due(self, page: SharedState, now_ms: int, max_count: int) -> Due:
        """Return up to `max_count` timers after the cursor that are due now."""
        cursor, window = cursor_of(page), self._look(page)
        first = _passed(window.entries, cursor)
        last = int(np.searchsorted(window.entries["due"], now_ms, side="right"))
        rows = slice(first, max(first, min(last, first + max_count)))
        return Due(window.entries[rows], window.alive[rows])

    def next_due(self, page: SharedState) -> int:
        """Return the due time of the first timer after the cursor, or NEVER."""
        cursor, window = cursor_of(page), self._look(page)
        first = _passed(window.entries, cursor)
        return int(window.entries["due"][first]) if first < len(window.entries) else NEVER

    def _look(self, page: SharedState) -> _Window:
        """Return a window that contains the first entry after the cursor, if there is one."""
        cursor, window = cursor_of(page), self._window
        timed, structure = self._seen
        if structure != page[STRUCTURE]:
            window = None  # The cursor may have been set back, and entries may have been erased.
        if window is not None and timed != page[TIMER_QUEUE_OFFSET] and not self._read_on(window):
            window = None
        if window is None or (
            window.high < NEVER and _passed(window.entries, cursor) == len(window.entries)
        ):
            window = self._read(cursor, page[TIMER_QUEUE_OFFSET])
        self._window, self._seen = window, (page[TIMER_QUEUE_OFFSET], page[STRUCTURE])
        return window

    def _read(self, cursor: Cursor, timed: int) -> _Window:
        """Return a window with the next entries, starting at the cursor's second."""
        low, tally = slot_start(max(cursor[0], 1)), self._index.tally.read(timed)
        self._index.check(tally, cursor[0])
        first = self._index.first_due(cursor, tally)
        if first == NEVER:
            # All entries that are added later belong to the window.
            lengths = {start: self._index.length(start) for start in self._index.starts()}
            return _Window(low, NEVER, lengths)
        window = _Window(low, slot_start(first + WINDOW_MS))
        self._add(window, self._new(window, tally))
        return window

    def _read_on(self, window: _Window) -> bool:
        """Add the new entries; return False if the window has to be read again.

        It must be read again if a new entry is before the window, or if a file has become shorter.
        """
        if any(self._index.length(start) < read for start, read in window.read.items()):
            return False
        new = self._new(window)
        if len(new) and int(new["due"].min()) <= window.low:
            return False
        self._add(window, new)
        return True

    def _new(self, window: _Window, tally: Tally | None = None) -> TimerEntries:
        """Return the entries added to the files of the window since the last call."""
        parts = [_NOTHING]
        for start in self._starts(window):
            if window.low < start + HOUR_MS and start < window.high:
                position = window.read.get(start, 0)
                window.read[start] = self._index.length(start)
                if window.read[start] != position:
                    parts.append(
                        self._index.chosen(
                            start, lambda part: part["due"] <= window.high, position, tally
                        )
                    )
        return np.concatenate(parts)

    def _starts(self, window: _Window) -> Sequence[int]:
        """Return the files that may have entries of the window."""
        if window.high - window.low > _LONG_MS:
            return self._index.starts()
        return range(window.low // HOUR_MS * HOUR_MS, window.high, HOUR_MS)

    def _add(self, window: _Window, new: TimerEntries) -> None:
        new = new[new["due"] > window.low]
        if not len(new):
            return
        entries = sorted_unique(np.concatenate((window.entries, new)))
        if len(entries) > _MAX_ENTRIES:
            window.high = min(window.high, slot_start(int(entries["due"][_MAX_ENTRIES])) + SLOT_MS)
            entries = entries[entries["due"] <= window.high]
        window.entries, window.alive = entries, are_live(entries)


def cursor_of(page: SharedState) -> Cursor:
    """Return the cursor of timer delivery."""
    return page[TIMER_READ_TIME], page[TIMER_READ_OFFSET]


def _passed(entries: TimerEntries, cursor: Cursor) -> int:
    """Return the number of sorted entries up to the cursor."""
    due, at = cursor
    first, last = np.searchsorted(entries["due"], [due, due + 1])
    return int(first + np.searchsorted(entries["queue_offset"][first:last], at, side="right"))
