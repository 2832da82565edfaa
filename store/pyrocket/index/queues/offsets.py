"""Finds offsets of a queue by bytes, by time and by log offset, from the queue's entries.

An entry has 20 bytes, so a few reads of 20 MiB in total return the sizes of a GiB of 1 KiB
messages. Store times never decrease in a log that pyrocket writes; in a broker's log they decrease
only if its clock was set back. A lookup by time returns the same offset as RocketMQ since 5.1.1
(`LOWER`).
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from pyrocket.errors import (
    REBUILD_QUEUES,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
    StorePermissionError,
)
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.queue_entry import PRE_BLANK_SIZE
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.missing_files import BEGIN_AT_MINIMUM, no_entry, no_log_file
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.message import ByteSpan

_FIRST_READ, _LONGEST_READ = 1024, 65_536
"""Entries per read. Each read is twice as long as the last one, so few are read unnecessarily."""

_MAX_SUMMED = 256
"""Up to this number, entries are summed instead of sampled: one read returns all of them."""

_MAX_GAP = 512
"""A gap of at most this number of entries is read instead of skipped."""

_NO_ENTRY = -1
_DELETED = -1
"""Returned instead of a store time if the message was deleted after the search started."""


def span_of(queue: ConsumeQueue, start: int, end: int) -> ByteSpan:
    """Return the log range and the approximate size of the messages [start, end).

    The size is exact for up to 256 messages, otherwise it is estimated from the first, the middle
    and the last message. All values are 0 if none of these entries exists.
    """
    if end - start <= _MAX_SUMMED:
        entries = queue.entries(start, end)
    else:
        sample = (start, (start + end) // 2, end - 1)
        entries = np.concatenate([queue.entries(at, at + 1) for at in sample])
    if start >= end or not len(entries):
        return ByteSpan(0, 0, 0)
    last = entries[-1]
    stop = int(last["physical_offset"]) + int(last["size"])
    total = int(entries["size"].astype(np.int64).sum())
    return ByteSpan(int(entries[0]["physical_offset"]), stop, total * (end - start) // len(entries))


def cut_by_bytes(
    queue: ConsumeQueue, start: int, end: int, marks: Sequence[int]
) -> list[tuple[int, int]]:
    """Return, for each size limit in `marks` (bytes, ascending), an end offset and a size.

    The end offset is the largest one for which the messages [start, end offset) do not exceed the
    limit; the size is theirs. Entries are read up to the last limit, `end` or a missing entry.
    """
    ends: list[tuple[int, int]] = []
    at, total, count = start, 0, _FIRST_READ
    while at < end and len(ends) < len(marks):
        sizes = queue.entries(at, min(end, at + count))["size"].astype(np.int64)
        if not len(sizes):
            break
        sums = total + np.cumsum(np.maximum(sizes, 0))
        reached = [mark for mark in marks[len(ends) :] if mark < sums[-1]]
        ends += [
            (at + before, int(sums[before - 1]) if before else total)
            for before in np.searchsorted(sums, reached, side="right").tolist()
        ]
        at, total = at + len(sizes), int(sums[-1])
        count = min(2 * count, _LONGEST_READ)
    return ends + [(at, total)] * (len(marks) - len(ends))


def log_offsets_at(queue: ConsumeQueue, offsets: Ints) -> Ints:
    """Return the log offsets of the messages at these ascending offsets, -1 where missing."""
    log_offsets = np.full(len(offsets), _NO_ENTRY, np.int64)
    for rows in np.split(np.arange(len(offsets)), np.flatnonzero(np.diff(offsets) > _MAX_GAP) + 1):
        if not len(rows):
            continue
        first = int(offsets[rows[0]])
        entries = queue.entries(first, int(offsets[rows[-1]]) + 1)
        at = offsets[rows] - first
        there = at < len(entries)
        entries = entries[at[there]]
        is_entry = (entries["size"] > 0) & (entries["size"] != PRE_BLANK_SIZE)
        log_offsets[rows[there]] = np.where(is_entry, entries["physical_offset"], _NO_ENTRY)
    return log_offsets


def offset_by_time(
    log: CommitLog, queue: ConsumeQueue, minimum: int, maximum: int, timestamp_ms: int
) -> int:
    """Return the first offset in [minimum, maximum) stored at or after a time, or `maximum`."""
    offsets = range(minimum, maximum)
    return minimum + bisect_left(
        offsets, timestamp_ms, key=lambda offset: _store_timestamp(log, queue, offset)
    )


def store_time(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """Return the store time of the message at `offset`, ms. Raises OffsetOutOfRangeError."""
    stored = _store_timestamp(log, queue, offset)
    if stored == _DELETED:
        raise OffsetOutOfRangeError(
            f"the message at offset {offset} of queue {queue.queue_id} of {queue.topic!r} has"
            " expired.",
            remedy=BEGIN_AT_MINIMUM,
        )
    return stored


def _store_timestamp(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    where = f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    entries = queue.entries(offset, offset + 1)
    if not len(entries):
        error = no_entry(queue, offset)
        if error is None:
            raise OffsetOutOfRangeError(f"there is no message at {where}.")
        return _deleted(error)
    position = int(entries[0]["physical_offset"])
    try:
        return log.stored_at(position)
    except StorePermissionError:
        raise
    except FileNotFoundError:
        return _deleted(no_log_file(log.run, position, where))
    except (ValueError, OSError) as error:
        raise StoreDamagedError(
            f"the queue entry of {where} is invalid: log offset {position} ({error}).",
            remedy=REBUILD_QUEUES,
        ) from error


def _deleted(error: PyrocketError) -> int:
    """Return `_DELETED` if the error means that the message has expired; otherwise raise it."""
    if isinstance(error, OffsetOutOfRangeError):
        return _DELETED
    raise error
