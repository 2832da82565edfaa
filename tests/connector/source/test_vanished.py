"""Topics and queues that are deleted while a stream reads them, with a simulated source."""

import pytest
from pyrocket import QueueOffsets
from pyrocket.errors import OffsetOutOfRangeError, TopicRecreatedError
from pyspark_pyrocket.options.policies import FAIL, SKIP, LossPolicy
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.stream_planner import initial_offset, latest_offset, next_offset
from support.offsets import BROKER, offsets

GO_ON = ("skip", "earliest", "latest")


def options(policy, subscription=None):
    return ReadOptions(
        path="/s",
        subscription=subscription or SubscribedTopics(("t",)),
        loss=LossPolicy(policy=policy),
    )


@pytest.fixture
def stopped(numbers):
    """A store, and a query that has read ten of its messages."""
    store = numbers(t={0: (0, 10)})
    start, _ = store.step(initial_offset(store, options(FAIL)))
    return store, start


def test_removed_queues_are_not_a_loss_while_their_messages_exist(stopped):
    """As in RocketMQ, removed queues are still read to their ends."""
    store, start = stopped
    store.grow("t", 1, 4)
    del store.known["t"][1]
    start = initial_offset(store, options(FAIL))
    store.grow("t", 1, 4)
    start, _ = store.step(start, take=lambda begin, end: offsets({"t": {0: 10, 1: 2}}))
    store.known["t"].pop(1)
    store.left["t", 1] = QueueOffsets(0, 4)
    start, seen = store.step(start)
    assert seen == [("t", 1, 2, 4)]
    assert next_offset(store, options(FAIL), start) is None


def test_a_removed_queue_that_was_cleaned_before_it_was_read_is_a_loss(numbers):
    store = numbers(t={0: (0, 1), 1: (0, 4)})
    start, _ = store.step(initial_offset(store, options(FAIL)))
    store.known["t"].pop(1)
    store.left["t", 1] = QueueOffsets(9, 12)
    with pytest.raises(OffsetOutOfRangeError, match="queue 1: offset 4 is outside 9 to 12"):
        next_offset(store, options(FAIL), start)
    assert store.step(start, options(SKIP))[1] == [("t", 1, 9, 12)]


def test_an_assigned_queue_that_was_removed_is_read_to_its_end(numbers):
    store = numbers(t={0: (0, 1), 1: (0, 4)})
    asked = SubscribedTopics(("t",), queues={"t": (1,)})
    start = initial_offset(store, options(FAIL, asked))
    store.known["t"].pop(1)
    store.left["t", 1] = QueueOffsets(0, 4)
    start, seen = store.step(start, options(FAIL, asked))
    assert seen == [("t", 1, 0, 4)]
    assert next_offset(store, options(FAIL, asked), start) is None
    assert not latest_offset(store, options(FAIL, asked)).offsets


def test_available_now_reads_removed_queues_to_their_current_ends(numbers):
    store = numbers(t={0: (0, 1), 1: (0, 4)})
    start = initial_offset(store, options(FAIL))
    store.known["t"].pop(1)
    store.left["t", 1] = QueueOffsets(0, 4)
    target, some = offsets({"t": {0: 1}}), offsets({"t": {0: 1, 1: 3}})
    start, seen = store.step(start, target=target, take=lambda begin, end: some)
    store.left["t", 1] = QueueOffsets(0, 9)
    start, more = store.step(start, target=target)
    assert (seen, more) == ([("t", 0, 0, 1), ("t", 1, 0, 3)], [("t", 1, 3, 4)])


@pytest.mark.parametrize("go_on", ["skip", "latest"])
def test_a_recreated_topic_that_is_detected_late_repeats_no_message(stopped, go_on):
    """The micro-batch was planned while the topic was being created: it has the old id."""
    store, start = stopped
    store.grow("t", 0, minimum=12, maximum=30)
    start, seen = store.step(start, options("skip"))
    assert seen == [("t", 0, 12, 30)]
    store.ids["t"] = "another"
    start, seen = store.step(start, options(go_on))
    assert (seen, start.offsets) == ([], offsets({"t": {0: 30}}))
    assert start.lost == offsets({"t": {0: 2}})


def test_a_recreated_topic_is_detected_with_every_kind_of_subscription(numbers):
    for asked in (
        SubscribedTopics(("t",)),
        SubscribedTopics(("t", "u"), wait=True),
        SubscribedTopics(pattern="t"),
        SubscribedTopics(("t",), queues={"t": (0,)}),
    ):
        store = numbers(t={0: (0, 3)})
        start, _ = store.step(initial_offset(store, options(FAIL, asked)), options(FAIL, asked))
        store.ids["t"] = "another"
        with pytest.raises(TopicRecreatedError):
            next_offset(store, options(FAIL, asked), start)
        end = next_offset(store, options(SKIP, asked), start)
        assert end.topic_ids["t"] == {BROKER: "another"}


@pytest.mark.parametrize(
    "asked", [SubscribedTopics(pattern="t"), SubscribedTopics(("t",), wait=True)]
)
def test_a_topic_that_may_be_deleted_once_read_may_also_be_created_again(numbers, asked):
    store = numbers(t={0: (0, 3), 1: (0, 0)})
    start, _ = store.step(initial_offset(store, options(FAIL, asked)), options(FAIL, asked))
    store.delete("t")
    store.grow("t", 0, minimum=3, maximum=5)
    store.grow("t", 1, 2)
    store.ids["t"] = "another"
    end, seen = store.step(start, options(FAIL, asked))
    assert seen == [("t", 0, 3, 5), ("t", 1, 0, 2)]
    assert end.topic_ids["t"] == {BROKER: "another"}
    assert not end.lost


@pytest.mark.parametrize("minimum", [0, 4])
def test_a_recreated_topic_of_a_pattern_is_a_loss_unless_it_was_read(numbers, minimum):
    """Its offsets begin after messages that were not read, or at 0 again."""
    store, asked = numbers(t={0: (0, 3)}), SubscribedTopics(pattern="t")
    start, _ = store.step(initial_offset(store, options(FAIL, asked)), options(FAIL, asked))
    store.grow("t", 0, minimum=minimum, maximum=9)
    store.ids["t"] = "another"
    with pytest.raises(TopicRecreatedError):
        next_offset(store, options(FAIL, asked), start)


def test_the_reported_latest_offset_ignores_deleted_topics(stopped):
    store, _ = stopped
    store.delete("t")
    assert latest_offset(store, options(SKIP)).offsets.by_topic() == {}
