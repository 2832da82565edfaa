"""How many bytes of the log lie between two offsets of a queue: sums over its entries' sizes.

An entry is 20 bytes, so a GiB of messages of a KiB each costs a look at 20 MiB, in a few reads.
"""

from collections.abc import Sequence

import numpy as np

from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.message import ByteSpan

_FIRST_READ, _LONGEST_READ = 1024, 65_536
"""Entries; each read is twice as long as the one before, so that few are read for nothing."""

_SUMMED = 256
"""So many entries are summed up rather than guessed at: they come with one read."""


def span_of(queue: ConsumeQueue, start: int, end: int) -> ByteSpan:
    """Return where the messages [start, end) lie in the log, and about how many bytes they have.

    The count is exact up to 256 messages, otherwise guessed from the first, the middle and the
    last one. Zeros where none of their entries is there.
    """
    if end - start <= _SUMMED:
        found = queue.entries(start, end)
    else:
        asked = (start, (start + end) // 2, end - 1)
        found = np.concatenate([queue.entries(at, at + 1) for at in asked])
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
    """Return for each mark where the messages from `start` on reach it: offset and bytes.

    The offset is the last up to which [start, offset) has no more than so many bytes; marks
    ascend. Entries are read as far as the last mark, and no farther than they are there.
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
