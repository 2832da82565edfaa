"""Batch reads of what waits in a store: delayed messages, and undecided ones of transactions."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyrocket import PendingRange, Store
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import HALF
from pyspark_pyrocket.source.planner import topics_to_read
from pyspark_pyrocket.transport.path import store_of_driver
from pyspark_pyrocket.worker import freeze_imports

_TASK_MESSAGES = 32_768


@dataclass(frozen=True)
class PendingPartition(InputPartition):
    """One task: places in a store's own topics, in which messages for `topics`, or any, wait."""

    path: str
    store: str
    topics: tuple[str, ...]
    parts: tuple[PendingRange, ...]


def pending_partitions(store: Store, options: ReadOptions) -> list[PendingPartition]:
    """Return the tasks that read what waits now; messages of other topics are left out there."""
    topics = tuple(topics_to_read(store, options))
    parts = store.views.pending("half" if options.view == HALF else "scheduled")
    groups = _grouped(parts)
    return [PendingPartition(options.path, store.uuid, topics, group) for group in groups]


def read_pending(
    partition: InputPartition, projection: Projection, *, verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one task."""
    freeze_imports()
    # Spark makes up a partition of its own when there are none.
    if not isinstance(partition, PendingPartition):
        return iter(())
    batches = pending_batches(partition, projection.scan, verify_crc=verify_crc)
    return projection.apply_all(batches)


def pending_batches(
    partition: PendingPartition, columns: tuple[str, ...], *, verify_crc: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one task as the store has them."""
    store = store_of_driver(partition.path, partition.store)
    for part in partition.parts:
        yield from store.views.scan_pending(part, partition.topics, columns, verify_crc=verify_crc)


def _grouped(parts: list[PendingRange]) -> Iterator[tuple[PendingRange, ...]]:
    group: list[PendingRange] = []
    messages = 0
    for part in parts:
        if group and messages + part.messages > _TASK_MESSAGES:
            yield tuple(group)
            group, messages = [], 0
        group.append(part)
        messages += part.messages
    if group:
        yield tuple(group)
