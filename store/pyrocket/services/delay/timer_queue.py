"""The timer topic's queue as entries of the buckets."""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries, timer_entries
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.record_fetch import records_at
from pyrocket.log.commit_log import CommitLog

_AT_ONCE = 65_536


def read_timers(
    log: CommitLog, queue: ConsumeQueue, start: int, stop: int
) -> Iterator[TimerEntries]:
    """Yield the timers at the queue offsets [start, stop), some thousands at a time.

    A damaged record, or one whose log file has gone, is passed over: it must not keep others.
    """
    for entries, _ in read_timed(log, queue, start, stop):
        yield entries


def read_timed(
    log: CommitLog, queue: ConsumeQueue, start: int, stop: int
) -> Iterator[tuple[TimerEntries, Ints]]:
    """Yield the same with when they were stored, epoch ms."""
    while start < stop:
        entries = queue.entries(start, min(stop, start + _AT_ONCE))
        if not len(entries):
            return
        offsets = entries["physical_offset"].astype(np.int64)
        for rows, records in records_at(log, offsets, entries["size"].astype(np.int64)):
            made = timer_entries(records, start + rows)
            whole = of_timer_topic(records) & (records.queue_offset == start + rows)
            yield made[whole], records.store_timestamp[whole]
        start += len(entries)


def of_timer_topic(records: RecordFields) -> Bools:
    """Return whether each record waits in the timer topic."""
    same = pc.equal(records.topics(), TIMER_TOPIC.encode())
    return np.asarray(same.to_numpy(zero_copy_only=False), bool)


def ordered(entries: TimerEntries) -> tuple[TimerEntries, Ints, Ints]:
    """Return entries as they lie in the log, with their places there and their sizes."""
    entries = entries[np.argsort(entries["physical_offset"], kind="stable")]
    return entries, entries["physical_offset"], entries["size"].astype(np.int64)
