"""What tasks read: half-open ranges of queues, small ones together. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

SMALL_BYTES = 1024 * 1024
"""Ranges estimated below this share a task: a task costs Spark about 65 ms of a core."""

TASK_BYTES = 4 * SMALL_BYTES
"""About how much the small ranges of one task hold together."""


@dataclass(frozen=True, order=True)
class QueueRange:
    """The messages of one queue from `start` up to, not including, `end`."""

    topic: str
    queue_id: int
    start: int
    end: int


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """One task: ranges, read in this order, and the store that the driver means.

    A task on another machine compares `store` with the uuid of what it finds at `path`.
    """

    path: str
    store: str
    ranges: tuple[QueueRange, ...]


def pack(
    ranges: Iterable[QueueRange], estimate_bytes: Callable[[QueueRange], int]
) -> list[tuple[QueueRange, ...]]:
    """Group ranges into tasks, in their order: a large one alone, small ones together."""
    large: list[tuple[QueueRange, ...]] = []
    small: list[tuple[QueueRange, int]] = []
    for queue_range in ranges:
        size = estimate_bytes(queue_range)
        if size >= SMALL_BYTES:
            large.append((queue_range,))
        else:
            small.append((queue_range, size))
    return large + list(_fill(small))


def _fill(small: list[tuple[QueueRange, int]]) -> Iterator[tuple[QueueRange, ...]]:
    group: list[QueueRange] = []
    group_bytes = 0
    for queue_range, size in small:
        if group and group_bytes + size > TASK_BYTES:
            yield tuple(group)
            group, group_bytes = [], 0
        group.append(queue_range)
        group_bytes += size
    if group:
        yield tuple(group)
