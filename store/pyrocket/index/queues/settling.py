"""What the files of a queue are when its entries were written anew: durable, and of their age.

RocketMQ 4.x looks up times by when the files were changed.
"""

from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog

_HEAD_BYTES = 96


def settle_queue(log: CommitLog, queue: ConsumeQueue, begin: int, end: int) -> None:
    """Make the entries of the log's [begin, end) durable, and give their files the right times.

    Each gets the store time of its last message. Raises SyncError, OSError.
    """
    low, high = queue.max_offset(begin), queue.max_offset(end)
    if low == high:
        return
    queue.run.sync(low * ENTRY_BYTES, high * ENTRY_BYTES)
    for start in queue.run.starts():
        first = start // ENTRY_BYTES
        behind = min(high, first + queue.run.file_bytes // ENTRY_BYTES)
        if low < behind and first < behind:
            _set_time_of(log, queue, start, behind - 1)


def _set_time_of(log: CommitLog, queue: ConsumeQueue, start: int, offset: int) -> None:
    """Give a file the time of one of its messages."""
    place = int(queue.entries(offset, offset + 1)[0]["physical_offset"])
    stored = read_store_timestamp(log.read(place, _HEAD_BYTES))
    if stored > 0:
        queue.run.set_time(start, stored)
