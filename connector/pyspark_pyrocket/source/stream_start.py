"""Creates the reader of a streaming query, checking everything before Spark requests an offset."""

from collections.abc import Iterator

import pyarrow as pa
from pyrocket.errors import PyrocketError
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.columns.values import require_value_schema
from pyspark_pyrocket.columns.views import check_columns
from pyspark_pyrocket.options.option import STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.planner import check_target
from pyspark_pyrocket.source.source_creation import prepare_source
from pyspark_pyrocket.source.stream_reader import Json, RocketStreamReader
from pyspark_pyrocket.transport.targets import target_of
from pyspark_pyrocket.worker import exit_on_sigterm, in_source_runner, log_to_stderr


@called_by_spark
class FailedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of an invalid query at Spark's first call."""

    def __init__(self, error: PyrocketError) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raise."""
        raise self._error

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Raise."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise."""
        raise self._error


def stream_reader(request: Request, schema: StructType) -> DataSourceStreamReader:
    """Check the options, columns, store and topics of a query, and return its reader.

    In Spark's source runner an invalid query gets a `FailedReader`: if this function raised, the
    runner would fail with an UnboundLocalError of its own and hide the error.
    """
    try:
        options = ReadOptions.parse(request, STREAM)
        projection = Projection.of(schema, options.payload)
        require_value_schema(options.payload, schema)
        check_columns(options.view, projection.scan)
        reader = RocketStreamReader(options, projection)
        target = target_of(options)
        check_target(target, options)
        prepare_source(target, options)
    except PyrocketError as error:
        if not in_source_runner():
            raise
        return FailedReader(error)
    if in_source_runner():
        log_to_stderr()
        exit_on_sigterm()
    return reader
