"""Batch reads: planned once on the driver, read by tasks."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_pyrocket.columns import default_columns
from pyspark_pyrocket.option_table import BATCH, READ
from pyspark_pyrocket.options import ReadOptions
from pyspark_pyrocket.planner import batch_partitions, topics_to_read
from pyspark_pyrocket.projection import Projection
from pyspark_pyrocket.stores import shared_store
from pyspark_pyrocket.target import Request
from pyspark_pyrocket.task import read_partition


def default_schema(request: Request) -> StructType:
    """Return the columns of a read without `.schema(...)`, if its store and topics exist."""
    options = ReadOptions.parse(request, READ)
    topics_to_read(shared_store(options.path), options)
    return default_columns(
        kafka=options.kafka_columns,
        headers=options.include_headers,
        text=options.value_format == "string",
    )


class RocketReader(DataSourceReader):
    """A batch read: ranges fixed by the first action of a DataFrame, which Spark remembers."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._options = ReadOptions.parse(request, BATCH)
        self._projection = Projection.of(schema, self._options.value_format)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan on the driver; raises about missing topics and offsets before any task runs."""
        return batch_partitions(shared_store(self._options.path), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task."""
        return read_partition(partition, self._projection, verify_crc=self._options.verify_crc)
