"""The size of partitions, and ranges that are read together."""

import pickle

from pyspark_pyrocket.source.partitions import Ranges, ReadPartition, small_together
from pyspark_pyrocket.transport.path import PathTarget
from support.offsets import span


def test_a_partition_is_small_when_pickled():
    ranges = tuple(span("t", queue, 0, 10) for queue in range(2))
    partition = ReadPartition(PathTarget("/data/store", "0" * 36), Ranges(ranges))
    data = pickle.dumps(partition)
    assert len(data) < 600
    assert pickle.loads(data) == partition


def shape(*ranges):
    return [
        [(each.queue.topic, each.queue.queue_id) for each in few] for few in small_together(ranges)
    ]


def test_small_ranges_of_a_topic_are_read_together_in_their_order():
    small = [span("t", queue, 0, 10) for queue in range(3)]
    large, other = span("t", 7, 0, 10_000), span("u", 0, 5, 6)
    assert shape(*small, other) == [[("t", 0), ("t", 1), ("t", 2)], [("u", 0)]]
    assert shape(small[0], large, *small[1:]) == [[("t", 0)], [("t", 7)], [("t", 1), ("t", 2)]]
    assert shape(large, large) == [[("t", 7)], [("t", 7)]]
    assert shape() == []


def test_no_more_than_a_few_hundred_ranges_are_read_together():
    many = [span("t", queue, 0, 1) for queue in range(600)]
    assert [len(few) for few in small_together(many)] == [256, 256, 88]
