"""Store time → queue offset: the first message stored at or after a time.

Binary search over the queue; store times never decrease along a log that we write, and in one
that Java wrote they do so only while its clock ran backwards. The meaning is that of RocketMQ from
5.1.1 on (`LOWER`).
"""

from pyrocket.errors import (
    REBUILD_QUEUES,
    OffsetOutOfRangeError,
    StoreDamagedError,
    StorePermissionError,
)
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.index.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog

_HEAD_BYTES = 96
_CLEANED = -1
"""Older than any time: a message that went after the search began."""


def offset_by_time(
    log: CommitLog, queue: ConsumeQueue, minimum: int, maximum: int, timestamp_ms: int
) -> int:
    """Return the first offset in [minimum, maximum) stored at or after the time, else maximum."""
    low, high = minimum, maximum
    while low < high:
        middle = (low + high) // 2
        if _store_timestamp(log, queue, middle) >= timestamp_ms:
            high = middle
        else:
            low = middle + 1
    return low


def store_time(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """Return when the message at `offset` was stored, ms. Raises OffsetOutOfRangeError."""
    stored = _store_timestamp(log, queue, offset)
    if stored == _CLEANED:
        raise OffsetOutOfRangeError(
            f"the message at offset {offset} of queue {queue.queue_id} of {queue.topic!r} was"
            " cleaned away.",
            remedy="Begin at the queue's minimum offset.",
        )
    return stored


def _store_timestamp(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    entries = queue.entries(offset, offset + 1)
    if not len(entries):
        if queue.is_cleaned(offset):
            return _CLEANED
        raise OffsetOutOfRangeError(
            f"queue {queue.queue_id} of {queue.topic!r} has no message at offset {offset}."
        )
    position = int(entries[0]["physical_offset"])
    try:
        return read_store_timestamp(log.read(position, _HEAD_BYTES))
    except StorePermissionError:
        raise
    except (ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError) and 0 <= position < log.first_offset():
            return _CLEANED
        raise StoreDamagedError(
            f"queue {queue.queue_id} of {queue.topic!r} has a bad entry at offset {offset}: log"
            f" offset {position} ({error}).",
            remedy=REBUILD_QUEUES,
        ) from error
