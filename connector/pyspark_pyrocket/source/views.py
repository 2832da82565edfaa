"""Batch reads of what is there besides the messages of topics, and nothing waits for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyrocket import Store, ViewName, ViewPart
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.transport.path import store_of_driver
from pyspark_pyrocket.worker import freeze_imports

TASK_BYTES = 64 * 1024 * 1024
"""About how much of the log one task looks at; a file of the log is not divided."""


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """One task: parts of a view, read in this order."""

    path: str
    store: str
    parts: tuple[ViewPart, ...]


def view_partitions(store: Store, options: ReadOptions) -> list[ViewPartition]:
    """Return the tasks that read a view as it is now."""
    parts = store.views.plan(
        cast("ViewName", options.view),
        topics=options.subscription.topics,
        group=options.progress.group,
        skips_damage=options.skips_damage,
    )
    return [ViewPartition(options.path, store.uuid, group) for group in _grouped(parts)]


def read_view(
    partition: InputPartition, projection: Projection, *, verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    freeze_imports()
    # Spark makes up a partition of its own when there are none.
    if not isinstance(partition, ViewPartition):
        return iter(())
    batches = view_batches(partition, projection.scan, verify_crc=verify_crc)
    return projection.apply_all(batches)


def view_batches(
    partition: ViewPartition, columns: tuple[str, ...], *, verify_crc: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task as the store has them."""
    store = store_of_driver(partition.path, partition.store)
    for part in partition.parts:
        yield from store.views.scan(part, columns, verify_crc=verify_crc)


def _grouped(parts: list[ViewPart]) -> Iterator[tuple[ViewPart, ...]]:
    group: list[ViewPart] = []
    weight = 0
    for part in parts:
        if group and weight + part.weight > TASK_BYTES:
            yield tuple(group)
            group, weight = [], 0
        group.append(part)
        weight += part.weight
    if group:
        yield tuple(group)
