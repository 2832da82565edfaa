"""Pending timers: all of them, or those of one second, as the index has them.

An entry of the index is not pending once the cursor has passed it, if it was cancelled, or if it
was replaced by a copy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.disk.shared_state import TIMER_QUEUE_OFFSET, TIMER_READ_OFFSET, TIMER_READ_TIME
from pyrocket.formats.timer_entry import (
    CANCELS,
    SLOT_MS,
    TIMER_ENTRY,
    TimerEntries,
    places,
    slot_start,
)
from pyrocket.services.delay.timer_index import Cursor, TimerIndex, are_after, sorted_unique
from pyrocket.services.delay.timer_tally import HOUR_MS


class PendingTimers:
    """Timers and cancellations by due time and queue offset.

    alive: which entries are to be delivered. ahead: which entries are after the cursor; those of
    the cursor's own second are included even if they are not.
    """

    def __init__(self, entries: TimerEntries, cursor: Cursor) -> None:
        self.entries = sorted_unique(entries)
        self.ahead = are_after(self.entries, cursor)
        self.alive = are_live(self.entries) & self.ahead

    @property
    def pending(self) -> TimerEntries:
        """The entries that are to be delivered."""
        return self.entries[self.alive]


@dataclass(frozen=True)
class TimerProgress:
    """How far timers are in the index (a queue offset), and how far they are delivered."""

    queue_offset: int
    cursor: Cursor

    @staticmethod
    def of(cursors: Mapping[int, int]) -> "TimerProgress":
        """Return the progress from the cursors of the shared state; missing ones are 0."""
        cursor = cursors.get(TIMER_READ_TIME, 0), cursors.get(TIMER_READ_OFFSET, 0)
        return TimerProgress(cursors.get(TIMER_QUEUE_OFFSET, 0), cursor)


def read_pending(
    index: TimerIndex, progress: TimerProgress, more: Iterable[TimerEntries] = ()
) -> PendingTimers:
    """Return the pending timers of the index together with `more`.

    Raises StoreDamagedError if the index lacks entries.
    """
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
    return PendingTimers(np.concatenate([np.zeros(0, TIMER_ENTRY), *parts, *more]), progress.cursor)


def read_second(index: TimerIndex, progress: TimerProgress, due_ms: int) -> PendingTimers:
    """Return the pending timers of one second; a due time before the cursor means the cursor's.

    Raises StoreDamagedError if the file of that hour lacks entries.
    """
    low = slot_start(max(progress.cursor[0], due_ms, 1))
    entries = index.chosen(
        low // HOUR_MS * HOUR_MS,
        lambda part: (part["due"] > low) & (part["due"] <= low + SLOT_MS),
        tally=index.tally.read(progress.queue_offset),
    )
    return PendingTimers(entries, progress.cursor)


Bools = npt.NDArray[np.bool_]


def are_live(entries: TimerEntries) -> Bools:
    """Return which entries are neither cancelled nor replaced.

    The entries have to be complete for each second that they are in.
    """
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
