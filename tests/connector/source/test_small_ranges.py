"""A task with a few messages of each of many queues."""

from dataclasses import replace

import pytest
from pyrocket import Store, StoreSource
from pyrocket.errors import OffsetOutOfRangeError, SchemaError
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.policies import LossPolicy
from pyspark_pyrocket.source.partitions import Ranges, ReadPartition
from pyspark_pyrocket.source.task import read_partition
from pyspark_pyrocket.transport.path import PathTarget, forget
from support.offsets import as_asked, span
from support.stores import batch

QUEUES = 20
TYPES = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "body": StringType(),
}
PLACE = Projection.of(StructType([StructField(name, kind) for name, kind in TYPES.items()]))


@pytest.fixture
def task(tmp_path):
    """A task with three messages of each queue of two topics."""
    path = str(tmp_path / "store")
    with Store.open(path, create=True) as store:
        for topic in "tu":
            store.topics.create(topic, read_queues=QUEUES, write_queues=QUEUES)
            places = [(queue, at) for at in range(3) for queue in range(QUEUES)]
            bodies = [f"{topic}-{queue}-{at}".encode() for queue, at in places]
            store.append_batch(batch(bodies, [queue for queue, _ in places]), topic=topic)
        uuid = store.uuid
    ranges = [span(topic, queue, 0, 3) for topic in "tu" for queue in range(QUEUES)]
    yield ReadPartition(PathTarget(path, uuid), Ranges(tuple(ranges)))
    forget(path)


def rows(task, **more):
    batches = list(read_partition(task, PLACE, as_asked(verify_crc=True, **more)))
    return batches, [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def expected(*gone):
    every = [(topic, queue, at) for topic in "tu" for queue in range(QUEUES) for at in range(3)]
    return [(*at, f"{at[0]}-{at[1]}-{at[2]}") for at in every if at not in gone]


def test_small_queues_of_a_topic_are_returned_in_one_arrow_batch(task, monkeypatch):
    monkeypatch.setattr(StoreSource, "slices", lambda *_, **__: pytest.fail("one by one"))
    batches, found = rows(task)
    assert found == expected()
    assert len(batches) == 2


def test_ranges_that_cannot_be_read_together_are_read_one_by_one(task, monkeypatch):
    monkeypatch.setattr(StoreSource, "joined_slice", lambda *_, **__: None)
    reads, real = [], StoreSource.slices
    monkeypatch.setattr(StoreSource, "slices", lambda *a, **m: reads.append(1) or real(*a, **m))
    batches, found = rows(task)
    assert found == expected()
    assert len(batches) == len(reads) == 2 * QUEUES, "each range is read once"


def test_deleted_messages_are_reported_or_skipped(task):
    gone = span("t", 5, 3, 6)
    beyond = replace(task, work=Ranges((*task.work.ranges, gone)))
    with pytest.raises(OffsetOutOfRangeError, match=r"queue 5 of 't'.*\[3, 6\)"):
        rows(beyond)
    assert rows(beyond, loss=LossPolicy(policy="skip"))[1] == expected()


def test_the_error_for_a_body_that_is_not_utf8_names_its_queue(task):
    with Store.open(task.target.path) as store:
        store.append_batch(batch([b"\xff"], 7), topic="u")
    ranges = task.work.ranges
    longer = [
        replace(at, end=4) if (at.queue.topic, at.queue.queue_id) == ("u", 7) else at
        for at in ranges
    ]
    with pytest.raises(SchemaError, match="'u' queue 7 offset 3 is not UTF-8"):
        rows(replace(task, work=Ranges(tuple(longer))))
