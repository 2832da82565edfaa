"""What the buckets of timers have to hold, from the log alone: where they are damaged or missing.

A timer is delivered if the cursor is past its due time. That says too little of two kinds: one that
came late, when the cursor was past its due time already, may still wait; and one that lies before
the cursor's time may have been delivered before the clock was set back. Both are few, and the log
tells: a delivered timer's copy lies behind it, stored when it was due or later.
"""

from collections.abc import Iterator

import numpy as np

from pyrocket.formats.timer_entry import TIMER_ENTRY, TimerEntries, seal
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog
from pyrocket.services.delay.timer_queue import read_timed
from pyrocket.services.delay.timer_queue_copies import copied, copies_since
from pyrocket.services.delay.timer_store import Cursor, are_behind

_SLACK_MS = 2000
"""A RocketMQ broker rounds to seconds."""


def undelivered(
    log: CommitLog,
    queue: ConsumeQueue,
    start: int,
    stop: int,
    cursor: Cursor,
    *,
    end: int,
    stored_ms: int,
) -> Iterator[TimerEntries]:
    """Yield what waits at the queue offsets [start, stop), all of which had been taken in, sealed.

    `end` is that of the log; what was due after its last store time has not been delivered.
    """
    doubtful = [np.zeros(0, TIMER_ENTRY)]
    for entries, stored in read_timed(log, queue, start, stop):
        behind = are_behind(entries, cursor)
        late = ~behind & (entries["queue_offset"] > cursor[1]) & (stored >= cursor[0])
        past = behind & (entries["due"] <= stored_ms)
        doubtful.append(entries[late | past])
        yield entries[behind & ~past]
    unsure = np.concatenate(doubtful)
    if len(unsure):
        copies = copies_since(log, int(unsure["due"].min()) - _SLACK_MS, end)
        unsure = unsure[~copied(unsure, copies)]
        unsure["due"] = np.maximum(unsure["due"], cursor[0])
        yield seal(unsure)
