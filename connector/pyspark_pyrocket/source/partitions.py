"""From ranges of queues to tasks: large ranges cut into pieces, small ones together.

A function of the ranges, of the options, and of records that no longer change: a replay gives the
same tasks.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyspark_pyrocket.options.batching import Splitting
from pyspark_pyrocket.source.ranges import QueueRange
from pyspark_pyrocket.source.sizes import ALL, Sizes

SMALL_BYTES = 1024 * 1024
"""Ranges with less share a task: a task costs Spark about 65 ms of a core."""

TASK_BYTES = 4 * SMALL_BYTES
"""About how much the small ranges of one task hold together."""

Task = tuple[QueueRange, ...]


@dataclass(frozen=True)
class _Weighed:
    range: QueueRange
    bytes: int


def cut(ranges: Iterable[QueueRange], splitting: Splitting, sizes: Sizes) -> list[Task]:
    """Return the ranges of each task, in their order: first the large ones, then small together."""
    weighed = [_Weighed(each, _bytes(each, splitting, sizes)) for each in ranges]
    most_rows = splitting.max_rows or ALL
    total = sum(each.bytes for each in weighed)
    small_bytes, task_bytes = _limits(splitting, total)
    large: list[_Weighed] = []
    small: list[_Weighed] = []
    for each in weighed:
        fits = each.bytes < small_bytes and each.range.rows <= most_rows
        (small if fits else large).append(each)
    joined = list(_join(small, task_bytes, most_rows))
    pieces = [
        piece
        for each, count in zip(large, _counts(large, splitting, total, len(joined)), strict=True)
        for piece in _split(each, count, splitting, sizes)
    ]
    return [(piece,) for piece in pieces] + joined


def _bytes(each: QueueRange, splitting: Splitting, sizes: Sizes) -> int:
    where = each.topic, each.queue_id, each.start, each.end
    if splitting.by_bytes:
        return sizes.cut_by_bytes(*where, [ALL])[0][1]
    return sizes.log_span(*where).bytes


def _limits(splitting: Splitting, total: int) -> tuple[int, int]:
    """Return from how many bytes on a range is alone in its task, and how many others share."""
    if not splitting.coalesce:
        return 0, 0
    small, task = SMALL_BYTES, TASK_BYTES
    if splitting.min_tasks is not None:
        task = max(total // splitting.min_tasks, 1)
        small = -(-task // 2)
    if splitting.max_bytes is not None:
        task = min(task, splitting.max_bytes)
        small = min(small, task)
    return small, task


def _join(small: Iterable[_Weighed], task_bytes: int, most_rows: int) -> Iterator[Task]:
    group: list[QueueRange] = []
    size = rows = 0
    for each in small:
        if group and (size + each.bytes > task_bytes or rows + each.range.rows > most_rows):
            yield tuple(group)
            group, size, rows = [], 0, 0
        group.append(each.range)
        size, rows = size + each.bytes, rows + each.range.rows
    if group:
        yield tuple(group)


def _counts(large: Sequence[_Weighed], splitting: Splitting, total: int, others: int) -> list[int]:
    """Return into how many pieces each range is cut, where there are `others` tasks besides."""
    counts = [min(each.range.rows, _share(each.bytes, splitting, total)) for each in large]
    # One more at a time for the range with the longest pieces.
    longest = [
        (-each.bytes / count, at)
        for at, (each, count) in enumerate(zip(large, counts, strict=True))
    ]
    heapq.heapify(longest)
    missing = (splitting.min_tasks or 0) - others - sum(counts)
    while missing > 0 and longest:
        _, at = heapq.heappop(longest)
        if counts[at] < large[at].range.rows:
            counts[at], missing = counts[at] + 1, missing - 1
            heapq.heappush(longest, (-large[at].bytes / counts[at], at))
    return counts


def _share(size: int, splitting: Splitting, total: int) -> int:
    """Return how many pieces are due to a range by its size alone, rounded to the next."""
    by_size = -(-size // (splitting.max_bytes or ALL))
    by_share = (2 * size * (splitting.min_tasks or 0) + total - 1) // max(2 * total, 1)
    return max(1, by_size, by_share)


def _split(each: _Weighed, count: int, splitting: Splitting, sizes: Sizes) -> Iterator[QueueRange]:
    """Yield the range in `count` pieces of equal bytes, those with too many messages in more."""
    whole = each.range
    marks = [each.bytes * at // count for at in range(1, count)]
    where = whole.topic, whole.queue_id, whole.start, whole.end
    cuts = sizes.cut_by_bytes(*where, marks) if marks else []
    edges = sorted({whole.start, *(offset for offset, _ in cuts), whole.end})
    for start, end in itertools.pairwise(edges):
        parts = -(-(end - start) // (splitting.max_rows or ALL))
        bounds = [start + (end - start) * at // parts for at in range(parts + 1)]
        for first, last in itertools.pairwise(bounds):
            yield QueueRange(whole.topic, whole.queue_id, first, last)
