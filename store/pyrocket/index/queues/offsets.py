"""Offsets of a queue by bytes, by time and in the log, found through its entries.

An entry has 20 bytes, so the sizes of a GiB of 1 KiB messages take 20 MiB, in a few reads. Store
times never decrease along a log that we write; in a log that Java wrote they decrease only where
its clock went back. A lookup by time returns what RocketMQ returns from 5.1.1 on (`LOWER`).
"""

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
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.missing_files import BEGIN_AT_MINIMUM, no_entry, no_log_file
from pyrocket.log.commit_log import CommitLog
from pyrocket.message import ByteSpan

_FIRST_READ, _LONGEST_READ = 1024, 65_536
"""Entries; each read is twice as long as the one before, so that few are read unnecessarily."""

_MAX_SUMMED = 256
"""Up to this many entries are summed rather than sampled: one read returns them all."""

_MAX_GAP = 512
"""A gap of up to this many entries is read rather than skipped."""

_HEAD_BYTES = 96
_NO_ENTRY = -1
_DELETED = -1
"""Instead of a store time, older than any: the message was deleted after the search began."""


def span_of(queue: ConsumeQueue, start: int, end: int) -> ByteSpan:
    """Return where the messages [start, end) lie in the log, and about how many bytes they have.

    The count is exact for up to 256 messages, otherwise estimated from the first, the middle and
    the last one. Zeros if none of these entries exists.
    """
    if end - start <= _MAX_SUMMED:
        found = queue.entries(start, end)
    else:
        sample = (start, (start + end) // 2, end - 1)
        found = np.concatenate([queue.entries(at, at + 1) for at in sample])
    if start >= end or not len(found):
        return ByteSpan(0, 0, 0)
    last = found[-1]
    stop = int(last["physical_offset"]) + int(last["size"])
    total = int(found["size"].astype(np.int64).sum())
    return ByteSpan(
        int(found[0]["physical_offset"]), stop, total * (end - start) // max(len(found), 1)
    )


def cut_by_bytes(
    queue: ConsumeQueue, start: int, end: int, marks: Sequence[int]
) -> list[tuple[int, int]]:
    """Return for each number of bytes, ascending, the offset that messages from `start` reach.

    That is the last offset up to which [start, offset) has no more bytes than the mark, and the
    bytes it has. Entries are read up to the last mark, the end or the first missing entry.
    """
    found: list[tuple[int, int]] = []
    at, total, count = start, 0, _FIRST_READ
    while at < end and len(found) < len(marks):
        sizes = queue.entries(at, min(end, at + count))["size"].astype(np.int64)
        if not len(sizes):
            break
        sums = total + np.cumsum(np.maximum(sizes, 0))
        reached = [mark for mark in marks[len(found) :] if mark < sums[-1]]
        found += [
            (at + before, int(sums[before - 1]) if before else total)
            for before in np.searchsorted(sums, reached, side="right").tolist()
        ]
        at, total = at + len(sizes), int(sums[-1])
        count = min(2 * count, _LONGEST_READ)
    return found + [(at, total)] * (len(marks) - len(found))


def log_offsets_at(queue: ConsumeQueue, offsets: Ints) -> Ints:
    """Return the log offsets in the entries at these ascending queue offsets, which begin at 0.

    -1 if there is no entry. Entries near each other are read together.
    """
    found = np.full(len(offsets), _NO_ENTRY, np.int64)
    for rows in np.split(np.arange(len(offsets)), np.flatnonzero(np.diff(offsets) > _MAX_GAP) + 1):
        if not len(rows):
            continue
        first = int(offsets[rows[0]])
        entries = queue.entries(first, int(offsets[rows[-1]]) + 1)
        at = offsets[rows] - first
        there = at < len(entries)
        entries = entries[at[there]]
        is_entry = (entries["size"] > 0) & (entries["size"] != PRE_BLANK_SIZE)
        found[rows[there]] = np.where(is_entry, entries["physical_offset"], _NO_ENTRY)
    return found


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
    if stored == _DELETED:
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
        return _deleted(gone)
    position = int(entries[0]["physical_offset"])
    try:
        return read_store_timestamp(log.read(position, _HEAD_BYTES))
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
    """Return the time of a deleted message; raise an error if it is missing."""
    if isinstance(error, OffsetOutOfRangeError):
        return _DELETED
    raise error
