"""Checks a write, and creates its writer by the option `delivery`."""

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from pyspark_pyrocket.options.delivery import AT_LEAST_ONCE
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.sink.direct_writer import DirectStreamWriter, DirectWriter
from pyspark_pyrocket.sink.prepare import prepare_sink
from pyspark_pyrocket.sink.staged_writer import StagedStreamWriter, StagedWriter


def batch_writer(request: Request, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Check the target, create it if requested, and return the writer of a batch."""
    sink = prepare_sink(request, schema, overwrite)
    direct = sink.options.delivery == AT_LEAST_ONCE
    return DirectWriter(sink) if direct else StagedWriter(sink)


def stream_writer(
    request: Request, schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Check the target as `batch_writer` does, and return the writer of a micro-batch."""
    sink = prepare_sink(request, schema, overwrite, streaming=True)
    direct = sink.options.delivery == AT_LEAST_ONCE
    return DirectStreamWriter(sink) if direct else StagedStreamWriter(sink)
