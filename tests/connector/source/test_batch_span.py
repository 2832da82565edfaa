"""The start and end of batches in a real store, planned as for Spark."""

import pytest
from pyrocket import Store
from pyrocket.testing import FileClock
from pyspark_pyrocket import DefaultSource
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.transport.path import forget

SCHEMA = default_columns(kafka=False, headers=False, text=False)
MINUTE = 60_000
NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.fixture
def day(box):
    """One message a minute for ten minutes up to noon in queue 0; queue 1 stays empty."""
    clock = FileClock(box.path)
    clock.set(NOON - 10 * MINUTE)
    box.create(queues=2)
    for number in range(10):
        clock.advance(MINUTE)
        box.send(str(number), queue=0)
    yield box
    forget(box.path)


def planned(box, **options):
    reader = DefaultSource({**box.options, **options}).reader(schema=SCHEMA)
    ranges = [each for task in reader.partitions() for each in task.work.ranges]
    return [(each.queue.topic, each.queue.queue_id, each.start, each.end) for each in ranges]


def test_a_batch_reports_messages_in_removed_queues(box, caplog):
    """A running stream reads removed queues to their ends; a batch does not read them."""
    box.create(queues=3)
    for queue in range(3):
        box.send(*"abcde", queue=queue)
    other = type(box)(box.path, "other").create(queues=12)
    assert len(planned(box)) == 3
    assert not caplog.messages
    box.grow(queues=1)
    other.grow(queues=1)
    assert planned(box) == [("t", 0, 0, 5)]
    assert planned(other) == []
    (line,) = caplog.messages
    assert "'t' has fewer read queues than before: queues [1, 2] still hold 10 messages" in line
    caplog.clear()
    assigned = DefaultSource({"path": box.path, "assign": '{"t":[0]}'}).reader(schema=SCHEMA)
    assert len(assigned.partitions()) == 1
    assert not caplog.messages


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({}, [(0, 10)]),
        ({"startingTimestamp": "2026-01-01T11:55:00Z"}, [(4, 10)]),
        ({"startingTimestamp": str(NOON - MINUTE), "endingTimestamp": "now"}, [(8, 9)]),
        ({"startingTimestamp": "2026-01-02"}, []),
        ({"lastN": "3", "endingTimestamp": "-5m"}, [(1, 4)]),
        (
            {"startingOffsets": '{"t":{"0":2,"1":0}}', "endingOffsets": '{"t":{"0":3,"1":-1}}'},
            [(2, 3)],
        ),
    ],
)
def test_times_and_offsets_select_exactly_the_messages_between_them(day, options, ranges):
    assert planned(day, **options) == [("t", 0, *each) for each in ranges]


def test_lag_is_not_negative_after_a_topic_was_deleted_and_created_again(day):
    """The groups' offsets in a topic are deleted with it."""
    with Store.open(day.path) as store:
        store.groups.commit("export", "t", {0: 7})
        store.topics.delete("t")
        assert store.groups.committed("export", "t") == {}
    day.create(queues=1).send("new", queue=0)
    assert planned(day, startingOffsets="committed", group="export") == [("t", 0, 10, 11)]
