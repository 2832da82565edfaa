"""All timers that wait, for whoever wants to look at them or to keep them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pyrocket.disk.shared_state import TIMER_QUEUE_OFFSET, TIMER_READ_OFFSET, TIMER_READ_TIME
from pyrocket.formats.timer_entry import SLOT_MS, TIMER_ENTRY, TimerEntries, slot_start
from pyrocket.services.delay.living import living
from pyrocket.services.delay.timer_store import Cursor, TimerBuckets, are_behind, each_once
from pyrocket.services.delay.timer_tally import HOUR_MS


class Waiting:
    """Timers and cancellations by due time and queue offset; `alive`: which are to be delivered.

    What the cursor has passed is among them as far as it shares a slot with what it has not.
    """

    def __init__(self, entries: TimerEntries, cursor: Cursor) -> None:
        self.entries = each_once(entries)
        self.ahead = are_behind(self.entries, cursor)
        self.alive = living(self.entries) & self.ahead

    @property
    def pending(self) -> TimerEntries:
        """Those that are to be delivered."""
        return self.entries[self.alive]


@dataclass(frozen=True)
class Progress:
    """How far timers are taken in (a queue offset) and delivered."""

    timed: int
    cursor: Cursor

    @staticmethod
    def of(words: Mapping[int, int]) -> "Progress":
        """Return what words of the state page say; those that are missing are 0."""
        cursor = words.get(TIMER_READ_TIME, 0), words.get(TIMER_READ_OFFSET, 0)
        return Progress(words.get(TIMER_QUEUE_OFFSET, 0), cursor)


def read_waiting(
    buckets: TimerBuckets, progress: Progress, more: Iterable[TimerEntries] = ()
) -> Waiting:
    """Return what the buckets hold of what is taken in, and `more`.

    Raises StoreDamagedError if they do not hold all of it.
    """
    low = slot_start(max(progress.cursor[0], 1))
    tally = buckets.tally.read(progress.timed)
    buckets.check(tally, progress.cursor[0])
    parts = [
        buckets.chosen(
            start,
            lambda part: (part["due"] > low) & (part["queue_offset"] < progress.timed),
            tally=tally,
        )
        for start in buckets.starts()
        if start + HOUR_MS > low
    ]
    return Waiting(np.concatenate([np.zeros(0, TIMER_ENTRY), *parts, *more]), progress.cursor)


def read_slot(buckets: TimerBuckets, progress: Progress, due_ms: int) -> Waiting:
    """Return what waits in the second of a due time; what is late waits in the cursor's.

    Raises StoreDamagedError if the bucket of that hour does not hold all of it.
    """
    low = slot_start(max(progress.cursor[0], due_ms, 1))
    entries = buckets.chosen(
        low // HOUR_MS * HOUR_MS,
        lambda part: (part["due"] > low) & (part["due"] <= low + SLOT_MS),
        tally=buckets.tally.read(progress.timed),
    )
    return Waiting(entries, progress.cursor)
