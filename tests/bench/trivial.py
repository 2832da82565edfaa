"""A Python data source with minimal cost: it yields prebuilt Arrow batches, and counts written
rows. It is pickled by value, so that Spark's workers need not import this module.
"""

import gc
import sys
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def read_prebuilt(options, partition):
    """Yield the batches in the task's file. The file is mapped, so nothing is decoded or copied."""
    gc.freeze()
    with pa.memory_map(f"{options['batches']}.{partition.value}") as mapped:
        file = pa.ipc.open_file(mapped)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


class TrivialReader(DataSourceReader):
    def __init__(self, options):
        self._options = dict(options)

    def partitions(self):
        return [InputPartition(number) for number in range(int(self._options["tasks"]))]

    def read(self, partition):
        return read_prebuilt(self._options, partition)


class TrivialStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose offset is the number in the file `clock`."""

    def __init__(self, options):
        self._options = dict(options)

    def prepareForTriggerAvailableNow(self):
        """Nothing to prepare."""

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self, start, limit):
        return {"at": int(Path(self._options["clock"]).read_text())}

    def partitions(self, start, end):
        return [InputPartition(number) for number in range(int(self._options["tasks"]))]

    def read(self, partition):
        return read_prebuilt(self._options, partition)


class Counted(WriterCommitMessage):
    def __init__(self, rows):
        self.rows = rows


class TrivialWriter(DataSourceArrowWriter):
    def write(self, iterator):
        gc.freeze()
        return Counted(sum(batch.num_rows for batch in iterator))


class TrivialStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator):
        gc.freeze()
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages, batchId):
        """Nothing to commit."""


class Trivial(DataSource):
    @classmethod
    def name(cls):
        return "trivial"

    def schema(self):
        return "at int"

    def reader(self, schema):
        return TrivialReader(self.options)

    def streamReader(self, schema):
        return TrivialStreamReader(self.options)

    def writer(self, schema, overwrite):
        return TrivialWriter()

    def streamWriter(self, schema, overwrite):
        return TrivialStreamWriter()
