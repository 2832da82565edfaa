"""What tasks read: half-open ranges of queues. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

_FEW_ROWS, _FEW_RANGES = 256, 256
"""Ranges of so many messages at most are read together, and so many of them."""


@dataclass(frozen=True, order=True)
class QueueRange:
    """The messages of one queue from `start` up to, not including, `end`."""

    topic: str
    queue_id: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many messages it has."""
        return self.end - self.start


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """One task: ranges, read in this order, and the store that the driver means.

    A task on another machine compares `store` with the uuid of what it finds at `path`.
    """

    path: str
    store: str
    ranges: tuple[QueueRange, ...]


def together(ranges: Iterable[QueueRange]) -> Iterator[list[QueueRange]]:
    """Yield the ranges in their order: small ones of one topic together, others alone."""
    few: list[QueueRange] = []
    for each in ranges:
        if few and (each.topic != few[0].topic or len(few) == _FEW_RANGES or not _is_small(each)):
            yield few
            few = []
        few.append(each)
        if not _is_small(each):
            yield few
            few = []
    if few:
        yield few


def _is_small(each: QueueRange) -> bool:
    return each.rows <= _FEW_ROWS
