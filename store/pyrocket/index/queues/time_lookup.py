"""Store time → queue offset: the first message stored at or after a time.

Binary search over the queue; store times never decrease along a log that we write, and in one
that Java wrote they do so only while its clock ran backwards. The meaning is that of RocketMQ from
5.1.1 on (`LOWER`).
"""

from pyrocket.errors import (
    REBUILD_QUEUES,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
    StorePermissionError,
)
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.lost_files import BEGIN_AT_MINIMUM, no_entry, no_log_file
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
            remedy=BEGIN_AT_MINIMUM,
        )
    return stored


def _store_timestamp(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    where = f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    entries = queue.entries(offset, offset + 1)
    if not len(entries):
        gone = no_entry(queue, offset)
        if gone is None:
            raise OffsetOutOfRangeError(f"there is no message at {where}.")
        return _cleaned(gone)
    position = int(entries[0]["physical_offset"])
    try:
        return read_store_timestamp(log.read(position, _HEAD_BYTES))
    except StorePermissionError:
        raise
    except FileNotFoundError:
        return _cleaned(no_log_file(log.run, position, where))
    except (ValueError, OSError) as error:
        raise StoreDamagedError(
            f"there is a bad entry at {where}: log offset {position} ({error}).",
            remedy=REBUILD_QUEUES,
        ) from error


def _cleaned(gone: PyrocketError) -> int:
    """Return the time of what was cleaned away; what is lost is raised."""
    if isinstance(gone, OffsetOutOfRangeError):
        return _CLEANED
    raise gone
