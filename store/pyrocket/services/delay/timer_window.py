"""The timers that are due next, in memory: about a minute of them, however many are pending.

The window stays valid as long as the index only grows: if another process has added entries, only
these are read.
"""

from collections.abc import Sequence
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
from pyrocket.formats.timer_entry import SLOT_MS, TIMER_ENTRY, TimerEntries, slot_start
from pyrocket.services.delay.pending_timers import are_live
from pyrocket.services.delay.timer_index import Cursor, TimerIndex, sorted_unique
from pyrocket.services.delay.timer_tally import HOUR_MS, Tally

WINDOW_MS = 60_000
_LONG_MS = 24 * HOUR_MS
_MAX = 100_000
"""The window ends with the second in which it has so many entries."""

_NOTHING = np.zeros(0, TIMER_ENTRY)


@dataclass(frozen=True)
class Due:
    """Due timers in order; `alive` tells which of them are to be delivered."""

    entries: TimerEntries
    alive: npt.NDArray[np.bool_]

    @property
    def last(self) -> Cursor:
        """The cursor after their delivery."""
        return int(self.entries["due"][-1]), int(self.entries["queue_offset"][-1])


@dataclass
class _Window:
    """All entries with low < due <= high, and how many bytes of each file were read for them."""

    low: int = 0
    high: int = 0
    read: dict[int, int] = field(default_factory=dict)
    entries: TimerEntries = field(default_factory=_NOTHING.copy)
    alive: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))


class TimerWindow:
    """The window on the index of one store. Its callers hold the write lock.

    Its methods raise StoreDamagedError if the index lacks entries.
    """

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
        """Return the due time of the first timer after the cursor, NEVER for none."""
        cursor, window = cursor_of(page), self._look(page)
        first = _passed(window.entries, cursor)
        return int(window.entries["due"][first]) if first < len(window.entries) else NEVER

    def _look(self, page: SharedState) -> _Window:
        """Return a window that has the first entry after the cursor, if there is one."""
        cursor, window = cursor_of(page), self._window
        timed, structure = self._seen
        if structure != page[STRUCTURE]:
            window = None  # The cursor may have been set back, and entries erased.
        if window is not None and timed != page[TIMER_QUEUE_OFFSET] and not self._read_on(window):
            window = None
        if window is None or self._is_over(window, cursor):
            window = self._read(cursor, page[TIMER_QUEUE_OFFSET])
        self._window, self._seen = window, (page[TIMER_QUEUE_OFFSET], page[STRUCTURE])
        return window

    def _is_over(self, window: _Window, cursor: Cursor) -> bool:
        return window.high < NEVER and _passed(window.entries, cursor) == len(window.entries)

    def _read(self, cursor: Cursor, timed: int) -> _Window:
        """Return the window from the cursor's second on that has the next entries."""
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

        That is the case if some of them are before the window, or if a file is shorter.
        """
        if any(self._index.length(start) < read for start, read in window.read.items()):
            return False
        new = self._new(window)
        if len(new) and int(new["due"].min()) <= window.low:
            return False
        self._add(window, new)
        return True

    def _new(self, window: _Window, tally: Tally | None = None) -> TimerEntries:
        """Return the entries that the files of the window have got since the last call."""
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
        if len(entries) > _MAX:
            window.high = min(window.high, slot_start(int(entries["due"][_MAX])) + SLOT_MS)
            entries = entries[entries["due"] <= window.high]
        window.entries, window.alive = entries, are_live(entries)


def cursor_of(page: SharedState) -> Cursor:
    """Return how far timers are delivered."""
    return page[TIMER_READ_TIME], page[TIMER_READ_OFFSET]


def _passed(entries: TimerEntries, cursor: Cursor) -> int:
    """Return how many of the sorted entries are not after the cursor."""
    due, at = cursor
    first, last = np.searchsorted(entries["due"], [due, due + 1])
    return int(first + np.searchsorted(entries["queue_offset"][first:last], at, side="right"))
