"""Batch reads: planned once on the driver, read by tasks."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyrocket.errors import SchemaError
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_pyrocket.columns import DUE, default_columns
from pyspark_pyrocket.options.option import BATCH, READ
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.view import MESSAGES, SCHEDULED
from pyspark_pyrocket.pending import pending_partitions, read_pending
from pyspark_pyrocket.planner import batch_partitions, topics_to_read
from pyspark_pyrocket.projection import Projection
from pyspark_pyrocket.stores import shared_store
from pyspark_pyrocket.task import read_partition


def default_schema(request: Request) -> StructType:
    """Return the columns of a read without `.schema(...)`, if its store and topics exist."""
    options = ReadOptions.parse(request, READ)
    topics_to_read(shared_store(options.path), options)
    return default_columns(
        kafka=options.payload.kafka_columns,
        headers=options.payload.include_headers,
        text=options.payload.value_format == "string",
        due=options.view == SCHEDULED,
    )


def check_view(options: ReadOptions, projection: Projection) -> None:
    """Raise SchemaError if a column is asked for that messages of this view don't have."""
    if DUE in projection.scan and options.view != SCHEDULED:
        raise SchemaError(
            f"Only scheduled messages have a column {DUE!r}.",
            remedy="Set the option 'view' to scheduled, or leave the column out.",
            code="COLUMN_UNKNOWN",
        )


class RocketReader(DataSourceReader):
    """A batch read: ranges fixed by the first action of a DataFrame, which Spark remembers."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._options = ReadOptions.parse(request, BATCH)
        self._projection = Projection.of(schema, self._options.payload.value_format)
        check_view(self._options, self._projection)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan on the driver; raises about missing topics and offsets before any task runs."""
        store = shared_store(self._options.path)
        if self._options.view == MESSAGES:
            return batch_partitions(store, self._options)
        return pending_partitions(store, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task."""
        read = read_partition if self._options.view == MESSAGES else read_pending
        return read(partition, self._projection, verify_crc=self._options.verify_crc)
