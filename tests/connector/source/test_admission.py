"""The sizes of tasks, through Spark."""

import pytest
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.options.batching import Splitting
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.planner import batch_partitions
from pyspark_pyrocket.transport.targets import opened_source, target_at
from support.direct import read

ROWS = 400


@pytest.fixture
def skewed(box):
    """Nine tenths of the messages are in one of four queues, and one queue is empty."""
    box.create(queues=4)
    for queue, rows in ((0, ROWS * 9 // 10), (1, ROWS // 20), (3, ROWS // 20)):
        box.send(*(f"{queue}-{n}".ljust(1_000) for n in range(rows)), queue=queue)
    return box


def places(box, **options):
    rows = read(box.options, "queueId INT, queueOffset BIGINT", **options)
    return sorted(tuple(row.values()) for row in rows)


def test_a_read_can_have_more_tasks_than_queues(skewed):
    """Each message is read once, by about the requested number of tasks of about equal size."""

    def tasks(**options):
        source = DefaultSource({**skewed.options, **options})
        return len(source.reader(source.schema()).partitions())

    assert [tasks(), tasks(coalesceQueues="false"), tasks(minPartitions="8")] == [1, 3, 8]
    assert len(places(skewed)) == ROWS
    assert places(skewed, minPartitions="8") == places(skewed)


def test_a_queue_without_new_messages_gets_no_task(skewed):
    with opened_source(target_at(skewed.path)) as source:
        subscription = SubscribedTopics(("t",))
        options = ReadOptions(
            path=skewed.path, subscription=subscription, splitting=Splitting(coalesce=False)
        )
        queues = [
            each.queue.queue_id
            for task in batch_partitions(source, options)
            for each in task.work.ranges
        ]
    assert queues == [0, 1, 3]
