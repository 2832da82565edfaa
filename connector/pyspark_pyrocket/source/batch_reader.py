"""Batch reads: planned once on the driver, read by tasks.

Single messages are looked up on the driver, and read at their locations.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyrocket import LookupRequest, LookupResult, MessageLocations, MessageQueue
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.columns.views import (
    check_columns,
    columns_besides,
    table_projection,
    table_schema,
)
from pyspark_pyrocket.options.option import BATCH, READ
from pyspark_pyrocket.options.payload import JSON
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import COMMITLOG, MESSAGES, TABLES
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.bad_records import prepare_bad_records
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.infer_schema import value_fields
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.offsets import Offsets, topics_of
from pyspark_pyrocket.source.partitions import Locations, ReadPartition, group_by_weight
from pyspark_pyrocket.source.planner import (
    batch_partitions,
    check_target,
    needed_capabilities,
    read_bounds,
    topics_to_read,
    view_partitions,
)
from pyspark_pyrocket.source.task import read_partition
from pyspark_pyrocket.transport.interface import Bounds, MessageSource, Target
from pyspark_pyrocket.transport.targets import target_of
from pyspark_pyrocket.worker import LOG, log_to_stderr

TASK_MESSAGES = 32_768
"""Maximum messages in one task: reading a message may load a page of the log."""

TASK_BYTES = 32 * 1024 * 1024


def located_partitions(source: MessageSource, options: ReadOptions) -> list[ReadPartition]:
    """Return the tasks that read the messages with the keys or ids, within the span of the read."""
    bounds = read_bounds(source, options)
    start, end = find_span(source, options, bounds, Losses(options.loss))
    begin_ms, end_ms = options.span.time_range(source.now_ms())
    request = LookupRequest(
        topics=topics_of(bounds),
        keys=options.lookup.keys,
        ids=options.lookup.ids,
        begin_ms=begin_ms,
        end_ms=end_ms - 1,
    )
    tasks = []
    for broker, broker_source in source.by_broker().items():
        of_broker = {queue: has for queue, has in bounds.items() if queue.broker == broker}
        if of_broker:
            located = broker_source.locate(replace(request, topics=topics_of(of_broker)))
            within = list(_within(located, broker, start, end))
            _log(options, located, within, of_broker)
            tasks += [
                ReadPartition(broker_source.target, Locations(task)) for task in _tasks(within)
            ]
    return tasks


def _tasks(located: Iterable[MessageLocations]) -> Iterator[tuple[MessageLocations, ...]]:
    pieces = (
        locations[first : first + TASK_MESSAGES]
        for locations in located
        for first in range(0, len(locations), TASK_MESSAGES)
    )
    return group_by_weight(
        pieces, [TASK_MESSAGES, TASK_BYTES], lambda piece: [len(piece), piece.stored_bytes]
    )


def _within(
    located: LookupResult, broker: str, start: Offsets, end: Offsets
) -> Iterator[MessageLocations]:
    """Yield the locations within the span of the read."""
    for locations in located.locations:
        queue = MessageQueue(locations.topic, broker, locations.queue_id)
        if queue in start:
            kept = locations.within(start[queue], end[queue])
            if len(kept):
                yield kept


def _log(
    options: ReadOptions, located: LookupResult, kept: list[MessageLocations], bounds: Bounds
) -> None:
    """Log the number of messages found, and the cost of the lookup."""
    log_to_stderr()
    LOG.info(
        "%s found %d of %d messages of %s through the key index: candidates: %d, index files: %d,"
        " bytes of the log searched after the end of the index: %d, found outside the offsets"
        " to read: %d",
        options.lookup.describe(),
        sum(map(len, kept)),
        sum(limits.maximum - limits.minimum for limits in bounds.values()),
        ", ".join(topics_of(bounds)),
        located.candidates,
        located.index_files,
        located.walked_bytes,
        len(located) - sum(map(len, kept)),
    )


def default_schema(request: Request) -> StructType:
    """Return the columns of a read without `.schema(...)`, after checking its options and store.

    Topics need not exist, because the query may be a stream whose checkpoint knows what became of
    them. Only if columns are inferred from messages, a missing topic is an error.
    """
    options = ReadOptions.parse(request, READ)
    target = target_of(options)
    source = target.find_source() if options.create_if_missing else target.open_source()
    if options.view in TABLES:
        return table_schema(options.view)
    # The view `commitlog` also shows messages of deleted topics.
    is_log = options.view == COMMITLOG
    is_inferred = options.payload.value_format == JSON and options.payload.value_schema is None
    known = () if is_inferred else None
    topics = [] if is_log or source is None else topics_to_read(source, options, known)
    columns = default_columns(
        kafka=options.payload.kafka_columns,
        headers=options.payload.include_headers,
        text=options.payload.value_format == "string",
        fields=value_fields(source, topics, options),
    )
    return StructType([*columns, *columns_besides(options.view)])


def projection_of(schema: StructType, options: ReadOptions) -> Projection:
    """Return the projection of the view's rows, or raise SchemaError."""
    if options.view in TABLES:
        return table_projection(options.view, schema)
    projection = Projection.of(schema, options.payload)
    check_columns(options.view, projection.scan)
    return projection


@called_by_spark
class RocketReader(DataSourceReader):
    """A batch read. The first action on a DataFrame fixes its ranges, and Spark reuses them."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._options = ReadOptions.parse(request, BATCH)
        self._projection = projection_of(schema, self._options)
        if needed_capabilities(self._options):
            check_target(self._target, self._options)
        if self._options.payload.bad_topic:
            prepare_bad_records(self._target, self._options)

    @cached_property
    def _target(self) -> Target:
        """The target, which is found by a call over an endpoint."""
        return target_of(self._options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks on the driver; missing topics and offsets are reported now."""
        options, source = self._options, self._target.open_source()
        if options.lookup:
            return located_partitions(source, options)
        if options.view == MESSAGES:
            return batch_partitions(source, options)
        return view_partitions(source, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._projection, self._options)
