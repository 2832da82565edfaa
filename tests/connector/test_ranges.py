"""How ranges of queues become tasks."""

import pickle

from pyspark_pyrocket.ranges import SMALL_BYTES, TASK_BYTES, QueuePartition, QueueRange, pack


def ranges(*sizes):
    """Ranges of one byte a message."""
    return [QueueRange("t", queue, 0, size) for queue, size in enumerate(sizes)]


def queues(groups):
    return [[each.queue_id for each in group] for group in groups]


def size(each):
    return each.end - each.start


def test_small_ranges_share_a_task():
    assert queues(pack(ranges(1, SMALL_BYTES - 1, 5), size)) == [[0, 1, 2]]


def test_a_range_of_a_mebibyte_has_a_task_of_its_own():
    assert queues(pack(ranges(1, SMALL_BYTES, 5), size)) == [[1], [0, 2]]


def test_shared_tasks_stay_small():
    groups = pack(ranges(*[SMALL_BYTES - 1] * 9), size)
    assert queues(groups) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert all(sum(map(size, group)) <= TASK_BYTES for group in groups)


def test_nothing_to_read_needs_no_task():
    assert pack([], size) == []


def test_a_partition_is_small_when_pickled():
    partition = QueuePartition("/data/store", "0" * 36, tuple(ranges(10, 10)))
    data = pickle.dumps(partition)
    assert len(data) < 400
    assert pickle.loads(data) == partition
