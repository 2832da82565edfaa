"""Runs a partition on an executor: reads raw slices, decodes them, and returns columns to Spark.

The only place in the connector that decodes records, for every transport.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyrocket import MessageFilter, MessageLocations, ScanTally, decode_slices
from pyrocket.errors import (
    DataLossError,
    QueueNotFoundError,
    StoreDamagedError,
    TopicNotFoundError,
)
from pyspark.sql.datasource import InputPartition

from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import Selection
from pyspark_pyrocket.source.bad_records import sender
from pyspark_pyrocket.source.partitions import (
    Locations,
    Ranges,
    ReadPartition,
    Task,
    ViewParts,
    small_together,
)
from pyspark_pyrocket.source.tolerant_scan import Batches, read_locations, read_range
from pyspark_pyrocket.transport.interface import MessageSource, QueueRange
from pyspark_pyrocket.worker import LOG, freeze_imports, log_to_stderr

EVERY_MESSAGE = MessageFilter()


@dataclass(frozen=True)
class Columns:
    """The columns to decode, the filter, and whether bodies are compared with their CRC."""

    names: tuple[str, ...]
    where: MessageFilter = EVERY_MESSAGE
    verify_crc: bool = False

    def of_range(self, source: MessageSource, each: QueueRange, tally: ScanTally) -> Batches:
        """Yield exactly the messages of a range that are wanted."""
        slices = source.slices([each], where=self.where, tally=tally)
        join = not self.where.wants_all
        return decode_slices(slices, self.names, verify_crc=self.verify_crc, join=join)

    def of_locations(
        self, source: MessageSource, locations: MessageLocations, tally: ScanTally
    ) -> Batches:
        """Yield the messages at these locations that are wanted."""
        slices = source.slices_at(locations, where=self.where, tally=tally)
        return decode_slices(slices, self.names, verify_crc=self.verify_crc)

    def of_small_ranges(
        self, source: MessageSource, ranges: Task, tally: ScanTally
    ) -> pa.RecordBatch | None:
        """Return the messages of small ranges of one topic; None if each has to be read alone.

        So has a range with messages that are damaged or deleted: the loss policy counts by range.
        """
        counted = ScanTally()
        try:
            joined = source.joined_slice(ranges, where=self.where, tally=counted)
            if joined is None:
                return None
            batch = joined.decode_in_order(self.names, verify_crc=self.verify_crc)
        except (DataLossError, StoreDamagedError, TopicNotFoundError, QueueNotFoundError):
            return None
        if batch is not None:
            tally.add(counted)
        return batch


def read_partition(
    partition: InputPartition, projection: Projection, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the rows of one task, in their order.

    A retry and a replay read the same offsets again, except deleted messages that `onDataLoss`
    allows to skip. Raises StoreNotSharedError.
    """
    freeze_imports()
    # Spark creates a partition of its own if there are none.
    if not isinstance(partition, ReadPartition):
        return iter(())
    batches = rows_of(partition, projection.scan, options)
    return projection.apply_all(batches, sender(partition.target, options.payload.bad_topic))


def rows_of(
    partition: ReadPartition, names: tuple[str, ...], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the scan columns of one task's rows."""
    source, work = partition.target.open_source(), partition.work
    columns = Columns(names, options.selection.where, options.verify_crc)
    if isinstance(work, Ranges):
        yield from _read_ranges(source, work.ranges, columns, options.loss, options.selection)
    elif isinstance(work, Locations):
        for some in work.locations:

            def scan(locations: MessageLocations, tally: ScanTally) -> Batches:
                return columns.of_locations(source, locations, tally)

            yield from read_locations(source, some, options.loss, scan)
    else:
        yield from _read_view(source, work, columns)


def _read_ranges(
    source: MessageSource,
    ranges: Task,
    columns: Columns,
    loss: LossPolicy,
    selection: Selection,
) -> Iterator[pa.RecordBatch]:
    tally = ScanTally()

    def scan(each: QueueRange, counted: ScanTally) -> Batches:
        return columns.of_range(source, each, counted)

    for few in small_together(ranges):
        batch = columns.of_small_ranges(source, few, tally) if len(few) > 1 else None
        if batch is not None:
            yield batch
            continue
        for each in few:
            yield from read_range(source, each, loss, scan, tally)
    if not columns.where.wants_all:
        _log_tally(ranges, selection, tally)


def _read_view(
    source: MessageSource, work: ViewParts, columns: Columns
) -> Iterator[pa.RecordBatch]:
    for part in work.parts:
        yield from source.read_view(
            part, columns.names, topics=work.topics, verify_crc=columns.verify_crc
        )


def _log_tally(ranges: Task, selection: Selection, tally: ScanTally) -> None:
    log_to_stderr()
    queues = (f"{each.queue.topic}/{each.queue.queue_id}" for each in ranges)
    LOG.info(
        "%s chose %d of %d messages of %s: %d were passed over by the hash of their tags, %d when"
        " their properties had been read",
        selection.describe(),
        tally.messages,
        tally.entries,
        ", ".join(dict.fromkeys(queues)),
        tally.entries - tally.records,
        tally.records - tally.messages,
    )
