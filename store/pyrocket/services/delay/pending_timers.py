"""All timers that wait, for whoever wants to look at them or to keep them."""

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
    """Timers and cancellations by due time and queue offset; `alive`: which are to be delivered.

    What the cursor has passed is among them as far as it shares a slot with what it has not.
    """

    def __init__(self, entries: TimerEntries, cursor: Cursor) -> None:
        self.entries = sorted_unique(entries)
        self.ahead = are_after(self.entries, cursor)
        self.alive = are_live(self.entries) & self.ahead

    @property
    def pending(self) -> TimerEntries:
        """Those that are to be delivered."""
        return self.entries[self.alive]


@dataclass(frozen=True)
class TimerProgress:
    """How far timers are taken in (a queue offset) and delivered."""

    timed: int
    cursor: Cursor

    @staticmethod
    def of(words: Mapping[int, int]) -> "TimerProgress":
        """Return what words of the state page say; those that are missing are 0."""
        cursor = words.get(TIMER_READ_TIME, 0), words.get(TIMER_READ_OFFSET, 0)
        return TimerProgress(words.get(TIMER_QUEUE_OFFSET, 0), cursor)


def read_pending(
    index: TimerIndex, progress: TimerProgress, more: Iterable[TimerEntries] = ()
) -> PendingTimers:
    """Return what the buckets hold of what is taken in, and `more`.

    Raises StoreDamagedError if they do not hold all of it.
    """
    low = slot_start(max(progress.cursor[0], 1))
    tally = index.tally.read(progress.timed)
    index.check(tally, progress.cursor[0])
    parts = [
        index.chosen(
            start,
            lambda part: (part["due"] > low) & (part["queue_offset"] < progress.timed),
            tally=tally,
        )
        for start in index.starts()
        if start + HOUR_MS > low
    ]
    return PendingTimers(np.concatenate([np.zeros(0, TIMER_ENTRY), *parts, *more]), progress.cursor)


def read_second(index: TimerIndex, progress: TimerProgress, due_ms: int) -> PendingTimers:
    """Return what waits in the second of a due time; what is late waits in the cursor's.

    Raises StoreDamagedError if the bucket of that hour does not hold all of it.
    """
    low = slot_start(max(progress.cursor[0], due_ms, 1))
    entries = index.chosen(
        low // HOUR_MS * HOUR_MS,
        lambda part: (part["due"] > low) & (part["due"] <= low + SLOT_MS),
        tally=index.tally.read(progress.timed),
    )
    return PendingTimers(entries, progress.cursor)


Bools = npt.NDArray[np.bool_]


def are_live(entries: TimerEntries) -> Bools:
    """Return whether each is to be delivered; the entries hold all of the slots they are in."""
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
    """Return the rows that have a later copy."""
    rows = np.flatnonzero(np.isin(named, named[copies > 0]))
    rows = rows[np.lexsort((copies[rows], named[rows]))]
    names = named[rows]
    # The last row of each name has the most copies behind it.
    last = np.searchsorted(names, names, side="right") - 1
    return rows[copies[rows] < copies[rows][last]]
