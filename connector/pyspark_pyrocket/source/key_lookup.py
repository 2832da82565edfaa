"""Batch reads of single messages: looked up on the driver, read where they are by tasks."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyrocket import LookupRequest, LookupResult, MessageLocations, ScanTally, Store
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.options.positions import Bounds, QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import Selection
from pyspark_pyrocket.source.bad_records import sender
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.source.tolerant_scan import read_places
from pyspark_pyrocket.transport.path import store_of_driver
from pyspark_pyrocket.worker import LOG, freeze_imports, log_to_stderr

TASK_MESSAGES = 32_768
"""In one task: each may cost it a page of the log."""

TASK_BYTES = 32 * 1024 * 1024

_FAIL = LossPolicy()


@dataclass(frozen=True)
class PlacesPartition(InputPartition):
    """One task: places of single messages, read in this order."""

    path: str
    store: str
    places: tuple[MessageLocations, ...]


def located_partitions(store: Store, options: ReadOptions) -> list[PlacesPartition]:
    """Return the tasks that read what has the keys or ids, within the span of the read."""
    bounds = read_bounds(store, options)
    start, end = find_span(store, options, bounds, Losses(options.loss))
    begin_ms, end_ms = options.span.time_range(store.now())
    wanted = LookupRequest(
        topics=tuple(bounds),
        keys=options.lookup.keys,
        ids=options.lookup.ids,
        begin_ms=begin_ms,
        end_ms=end_ms - 1,
    )
    located = store.lookup.locate(wanted)
    within = [part for each in located.locations if (part := _within(each, start, end))]
    _log(options, located, within, bounds)
    return [PlacesPartition(options.path, store.uuid, task) for task in _tasks(within)]


def read_located(
    partition: InputPartition,
    projection: Projection,
    *,
    verify_crc: bool,
    selection: Selection,
    bad_topic: str = "",
    loss: LossPolicy = _FAIL,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one task, as far as `loss` lets it miss what is gone."""
    freeze_imports()
    # Spark makes up a partition of its own when there are none.
    if not isinstance(partition, PlacesPartition):
        return iter(())
    batches = _scan(partition, projection.scan, verify_crc, selection, loss)
    return projection.apply_all(batches, sender(partition.path, partition.store, bad_topic))


def _scan(
    partition: PlacesPartition,
    columns: tuple[str, ...],
    verify_crc: bool,
    selection: Selection,
    loss: LossPolicy,
) -> Iterator[pa.RecordBatch]:
    store = store_of_driver(partition.path, partition.store)

    def scan(places: MessageLocations, tally: ScanTally) -> Iterator[pa.RecordBatch]:
        slices = store.raw.slices_at(places, where=selection.where, tally=tally)
        return (batch for each in slices for batch in each.decode(columns, verify_crc=verify_crc))

    for places in partition.places:
        yield from read_places(store, places, loss, scan)


def _within(
    places: MessageLocations, start: QueueNumbers, end: QueueNumbers
) -> MessageLocations | None:
    """Return those that lie in the span of the read; None if there are none."""
    first = start.get(places.topic, {}).get(places.queue_id)
    if first is None:
        return None
    kept = places.within(first, end[places.topic][places.queue_id])
    return kept if len(kept) else None


def _tasks(places: list[MessageLocations]) -> Iterator[tuple[MessageLocations, ...]]:
    """Yield as many places as a task takes, queue by queue."""
    task: list[MessageLocations] = []
    messages = stored = 0
    for queue in places:
        for first in range(0, len(queue), TASK_MESSAGES):
            part = queue[first : first + TASK_MESSAGES]
            if task and (
                messages + len(part) > TASK_MESSAGES or stored + part.stored_bytes > TASK_BYTES
            ):
                yield tuple(task)
                task, messages, stored = [], 0, 0
            task.append(part)
            messages, stored = messages + len(part), stored + part.stored_bytes
    if task:
        yield tuple(task)


def _log(
    options: ReadOptions, located: LookupResult, kept: list[MessageLocations], bounds: Bounds
) -> None:
    """Tell what was used, and how much was left unread."""
    log_to_stderr()
    all_messages = sum(
        limits.maximum - limits.minimum for queues in bounds.values() for limits in queues.values()
    )
    LOG.info(
        "%s found %d of %d messages of %s through the key index: %d compared, files used: %d, bytes"
        " of the log behind it that were read: %d, found outside the offsets to read: %d",
        options.lookup.describe(),
        sum(map(len, kept)),
        all_messages,
        ", ".join(bounds),
        located.candidates,
        located.index_files,
        located.walked_bytes,
        len(located) - sum(map(len, kept)),
    )
