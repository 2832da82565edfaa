"""How ranges of queues are split into tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_pyrocket.options.batching import Splitting
from pyspark_pyrocket.source.partitions import SMALL_BYTES, TASK_BYTES, cut
from support.byte_sizes import Lengths
from support.offsets import span

MIB = 1 << 20
limits = st.none() | st.integers(1, 50)
queues_of_lengths = st.lists(st.lists(st.integers(91, 3_000), min_size=1, max_size=60), max_size=8)


def cut_queues(queues, first=0, **options):
    """Return the tasks for these queues, each a list of message lengths, and their store."""
    store = Lengths({("t", queue): lengths for queue, lengths in enumerate(queues)}, first)
    ranges = [span("t", queue, first, first + len(lengths)) for queue, lengths in enumerate(queues)]
    return store, cut(ranges, Splitting(**options), store)


def shape(tasks):
    return [[each.queue.queue_id for each in task] for task in tasks]


def rows(task):
    return sum(each.rows for each in task)


def size(store, task):
    return sum(sum(store.of(e.queue.topic, e.queue.queue_id, e.start, e.end)) for e in task)


def halves(mib):
    """Return the lengths of messages of half a MiB."""
    return [MIB // 2] * (2 * mib)


def test_tiny_queues_share_one_task():
    assert shape(cut_queues([[1], [SMALL_BYTES - 1], [5]])[1]) == [[0, 1, 2]]


def test_a_range_of_a_mebibyte_gets_its_own_task():
    assert shape(cut_queues([[1], [SMALL_BYTES], [5]])[1]) == [[1], [0, 2]]


def test_shared_tasks_stay_small():
    store, tasks = cut_queues([[SMALL_BYTES - 1]] * 9)
    assert shape(tasks) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert all(size(store, task) <= TASK_BYTES for task in tasks)


def test_without_coalescing_each_queue_has_a_task():
    assert shape(cut_queues([[1], [2], [3]], coalesce=False)[1]) == [[0], [1], [2]]


def test_a_read_without_messages_has_no_task():
    assert cut_queues([])[1] == []


def test_min_partitions_splits_large_queues():
    """If there are more tasks than queues, the large queue is split."""
    store, tasks = cut_queues([halves(90), halves(4), halves(4)], min_tasks=10)
    assert shape(tasks) == [[0]] * 9 + [[1, 2]]
    assert [size(store, task) for task in tasks] == [10 * MIB] * 9 + [8 * MIB]


def test_min_partitions_splits_a_skewed_backlog_evenly():
    """One queue of 900 MiB and 63 of 1.5 MiB: no task has more than its share."""
    store, tasks = cut_queues([halves(900), *[[MIB, MIB // 2]] * 63], min_tasks=10)
    assert 10 <= len(tasks) <= 11
    assert max(size(store, task) for task in tasks) <= 112 * MIB


def test_min_partitions_are_reached_by_cutting_the_longest_ranges():
    assert shape(cut_queues([halves(3), halves(3), halves(4)], min_tasks=4)[1]) == [
        [0],
        [1],
        [2],
        [2],
    ]
    assert shape(cut_queues([[200], [100, 100]], min_tasks=9)[1]) == [[0], [1], [1]]


def test_a_queue_with_almost_all_bytes_is_split_even_for_few_tasks():
    """With one task per core, none of them may have nine tenths of the bytes."""
    store, tasks = cut_queues([halves(90), halves(5), halves(5)], min_tasks=2)
    assert shape(tasks) == [[0], [0], [1, 2]]
    assert max(size(store, task) for task in tasks) == 45 * MIB


def test_queues_are_split_by_bytes_and_not_by_messages():
    """A few long messages have the same size as many short ones."""
    _, tasks = cut_queues([[1000] * 10 + [100_000] * 10], min_tasks=2, coalesce=False)
    assert [task[0].rows for task in tasks] == [14, 6]


def test_max_records_per_partition_limits_each_task():
    _, tasks = cut_queues([[100] * 25], max_rows=10)
    assert [(e.start, e.end) for task in tasks for e in task] == [(0, 8), (8, 16), (16, 25)]


def test_small_queues_share_a_task_up_to_max_records():
    assert shape(cut_queues([[1] * 4, [1] * 5, [1] * 2], max_rows=9)[1]) == [[0, 1], [2]]


def test_max_bytes_per_partition_limits_each_task():
    store, tasks = cut_queues([halves(64), halves(2)], max_bytes=16 * MIB)
    assert shape(tasks) == [[0]] * 4 + [[1]]
    assert {size(store, task) for task in tasks} == {16 * MIB, 2 * MIB}


def test_small_queues_share_a_task_up_to_max_bytes():
    assert shape(cut_queues([[400], [500], [200]], max_bytes=1_000)[1]) == [[0, 1], [2]]


def test_a_message_longer_than_a_task_gets_its_own_task():
    _, tasks = cut_queues([[100, 9_000, 100]], max_bytes=1_000)
    assert [(e.start, e.end) for task in tasks for e in task] == [(0, 1), (1, 3)]


@given(
    queues_of_lengths,
    st.integers(0, 10**9),
    st.booleans(),
    limits,
    limits,
    st.none() | st.integers(1, 40_000),
)
def test_tasks_cover_every_range_exactly_once(queues, first, coalesce, least, max_rows, max_bytes):
    options = {
        "coalesce": coalesce,
        "min_tasks": least,
        "max_rows": max_rows,
        "max_bytes": max_bytes,
    }
    store, tasks = cut_queues(queues, first, **options)
    pieces = [each for task in tasks for each in task]
    assert all(each.rows > 0 for each in pieces)
    for queue, lengths in enumerate(queues):
        own = [each for each in pieces if each.queue.queue_id == queue]
        ends = [first, *(each.end for each in own)]
        assert [each.start for each in own] == ends[:-1]  # Ascending, without gap or overlap.
        assert ends[-1] == first + len(lengths)
    assert max_rows is None or all(rows(task) <= max_rows for task in tasks)
    longest = max(map(max, queues), default=0)
    assert max_bytes is None or all(size(store, task) < max_bytes + 2 * longest for task in tasks)
    assert cut_queues(queues, first, **options)[1] == tasks


@given(queues_of_lengths, st.integers(1, 40))
def test_the_number_of_tasks_is_about_min_partitions(queues, least):
    _, tasks = cut_queues(queues, min_tasks=least)
    messages = sum(map(len, queues))
    assert len(tasks) <= 2 * least + len(queues)
    _, alone = cut_queues(queues, min_tasks=least, coalesce=False)
    assert len(alone) <= 4 * least // 3 + len(queues)
    if all(length == 100 for lengths in queues for length in lengths):
        assert len(alone) >= min(least, messages)


@pytest.mark.parametrize("least", [1, 3, 8, 64])
def test_messages_of_equal_length_are_split_into_exactly_min_partitions_tasks(least):
    _, tasks = cut_queues([[100] * 500, [100] * 100], min_tasks=least, coalesce=False)
    assert len(tasks) == max(least, 2)
