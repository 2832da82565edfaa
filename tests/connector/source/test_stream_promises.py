"""Guarantees of a streaming read: its tasks, and the batches that they return to Spark."""

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.arrow_types import arrow_schema
from pyspark_pyrocket.columns.messages import COLUMNS, default_columns
from pyspark_pyrocket.transport.path import forget

SCHEMA = default_columns(kafka=False, headers=False, text=False)


@pytest.fixture
def tasks(box):
    """Return the reader and the tasks of a first micro-batch of a queue of 90 and two of 5."""
    box.create(queues=3)
    for queue, count in enumerate((90, 5, 5)):
        box.send(*(b"%d" % at for at in range(count)), queue=queue)

    def plan(**options):
        options = {**box.options, "startingOffsets": "earliest", **options}
        reader = DefaultSource(options).streamReader(schema=SCHEMA)
        start = reader.initialOffset()
        return reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    yield plan
    forget(box.path)


def test_a_queue_of_a_stream_is_read_by_one_task_or_more(tasks):
    _, one_each = tasks(coalesceQueues="false")
    assert [[each.queue.queue_id for each in task.work.ranges] for task in one_each] == [
        [0],
        [1],
        [2],
    ]
    _, more = tasks(coalesceQueues="false", maxRecordsPerPartition="30")
    assert [(r.queue.queue_id, r.start, r.end) for task in more for r in task.work.ranges] == [
        (0, 0, 30),
        (0, 30, 60),
        (0, 60, 90),
        (1, 0, 5),
        (2, 0, 5),
    ]
    assert len(more) == 5


def test_tasks_return_arrow_batches_and_create_no_message_objects(tasks, monkeypatch):
    for name in ("Message", "StoredMessage"):
        monkeypatch.delattr(f"pyrocket.values.message.{name}.__init__")
    reader, planned = tasks()
    read = [batch for task in planned for batch in reader.read(task)]
    assert read
    assert all(type(batch) is pa.RecordBatch for batch in read)
    assert all(batch.schema.equals(arrow_schema(SCHEMA)) for batch in read)
    assert sum(batch.num_rows for batch in read) == 100
    assert set(SCHEMA.names) < set(COLUMNS)
