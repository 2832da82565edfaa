"""Tasks, and the grouping of ranges, locations and parts of views into them.

The grouping depends only on its arguments, on options and on records that do not change, so a
replay gets the same tasks.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pyrocket import MessageLocations, QueueRange
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.options.batching import Splitting
from pyspark_pyrocket.transport.interface import BrokerTarget, MessageSource, PlannedPart

SMALL_BYTES = 1024 * 1024
"""Smaller ranges share a task, because a task costs Spark about 65 ms of a core."""

TASK_BYTES = 4 * SMALL_BYTES
"""Approximate total bytes of the small ranges in one task."""

NO_LIMIT = 2**63 - 1

_SMALL_ROWS, _MAX_TOGETHER = 256, 256
"""Limits for ranges that are read together: messages in each range, and number of ranges."""

Task = tuple[QueueRange, ...]
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Ranges:
    """Work: ranges of queues, read in this order."""

    ranges: Task


@dataclass(frozen=True)
class Locations:
    """Work: single messages of some queues, read in this order."""

    locations: tuple[MessageLocations, ...]


@dataclass(frozen=True)
class ViewParts:
    """Work: parts of a view, read in this order. Of pending messages, only those for `topics`."""

    parts: tuple[PlannedPart, ...]
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadPartition(InputPartition):
    """One task: the broker that it reads from, and its work."""

    target: BrokerTarget
    work: Ranges | Locations | ViewParts


def group_by_weight(
    items: Iterable[_Item], limits: Sequence[float], weigh: Callable[[_Item], Sequence[float]]
) -> Iterator[tuple[_Item, ...]]:
    """Yield groups of consecutive items, each as large as all limits allow.

    `weigh` returns a weight for each limit. An item that exceeds a limit forms a group of its own.
    """
    group: list[_Item] = []
    totals = [0.0] * len(limits)
    for item in items:
        weights = weigh(item)
        sums = [total + weight for total, weight in zip(totals, weights, strict=True)]
        if group and any(total > limit for total, limit in zip(sums, limits, strict=True)):
            yield tuple(group)
            group, sums = [], list(weights)
        group.append(item)
        totals = sums
    if group:
        yield tuple(group)


def small_together(ranges: Iterable[QueueRange]) -> Iterator[Task]:
    """Yield the ranges in their order: small ranges of one topic together, others alone."""

    def kind(each: QueueRange) -> object:
        return each.queue.topic if each.rows <= _SMALL_ROWS else object()  # Forms no group.

    for _, group in itertools.groupby(ranges, kind):
        yield from group_by_weight(group, [_MAX_TOGETHER], lambda _: [1])


@dataclass(frozen=True)
class _Weighed:
    range: QueueRange
    bytes: int


def cut(ranges: Iterable[QueueRange], splitting: Splitting, source: MessageSource) -> list[Task]:
    """Return the ranges of each task: first the pieces of large ones, then the small ones."""
    weighed = _weighed(list(ranges), splitting, source)
    max_rows = splitting.max_rows or NO_LIMIT
    total = sum(item.bytes for item in weighed)
    small_bytes, task_bytes = _limits(splitting, total)
    large: list[_Weighed] = []
    small: list[_Weighed] = []
    for item in weighed:
        fits = item.bytes < small_bytes and item.range.rows <= max_rows
        (small if fits else large).append(item)
    groups = group_by_weight(
        small, [task_bytes, max_rows], lambda item: [item.bytes, item.range.rows]
    )
    joined = [tuple(item.range for item in group) for group in groups]
    counts = _counts(large, splitting, total, len(joined))
    return [(piece,) for piece in _split(large, counts, splitting, source)] + joined


def _weighed(
    ranges: Sequence[QueueRange], splitting: Splitting, source: MessageSource
) -> list[_Weighed]:
    if splitting.by_bytes:
        splits = source.split_at_bytes([(part, [NO_LIMIT]) for part in ranges])
        sizes = [size for ((_, size),) in splits]
    else:
        sizes = [span.bytes for span in source.sizes(ranges)]
    return [_Weighed(part, size) for part, size in zip(ranges, sizes, strict=True)]


def _limits(splitting: Splitting, total: int) -> tuple[int, int]:
    """Return the minimum bytes of a range with its own task, and the maximum of a shared task."""
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


def _counts(large: Sequence[_Weighed], splitting: Splitting, total: int, others: int) -> list[int]:
    """Return the number of pieces of each range; `others` is the number of all other tasks."""
    counts = [min(item.range.rows, _share(item.bytes, splitting, total)) for item in large]
    # Repeatedly add a piece to the range with the longest pieces.
    longest = [
        (-item.bytes / count, at)
        for at, (item, count) in enumerate(zip(large, counts, strict=True))
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
    """Return the number of pieces of a range by its size alone."""
    by_size = -(-size // (splitting.max_bytes or NO_LIMIT))
    by_share = (2 * size * (splitting.min_tasks or 0) + total - 1) // max(2 * total, 1)
    return max(1, by_size, by_share)


def _split(
    large: Sequence[_Weighed], counts: Sequence[int], splitting: Splitting, source: MessageSource
) -> Iterator[QueueRange]:
    """Yield each range in pieces of equal bytes; a piece with too many messages is split again."""
    marks = [
        [item.bytes * at // count for at in range(1, count)]
        for item, count in zip(large, counts, strict=True)
    ]
    asked = [(item.range, sizes) for item, sizes in zip(large, marks, strict=True) if sizes]
    cuts = dict(zip((whole for whole, _ in asked), source.split_at_bytes(asked), strict=True))
    for item in large:
        yield from _pieces(item.range, [at for at, _ in cuts.get(item.range, ())], splitting)


def _pieces(
    whole: QueueRange, offsets: Sequence[int], splitting: Splitting
) -> Iterator[QueueRange]:
    edges = sorted({whole.start, *offsets, whole.end})
    for start, end in itertools.pairwise(edges):
        parts = -(-(end - start) // (splitting.max_rows or NO_LIMIT))
        bounds = [start + (end - start) * at // parts for at in range(parts + 1)]
        for first, last in itertools.pairwise(bounds):
            yield replace(whole, start=first, end=last)
