"""How far a stream may go: over a store that exists as numbers only."""

import json
from pathlib import Path

import pytest
from pyrocket.errors import (
    DataLossError,
    InvalidInputError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from pyrocket.message import QueueOffsets
from pyrocket.services.topics import TopicConfig
from pyspark_pyrocket.checkpoint import StreamOffset
from pyspark_pyrocket.offsets import LATEST, OffsetChoice
from pyspark_pyrocket.options import ReadOptions
from pyspark_pyrocket.ranges import QueueRange
from pyspark_pyrocket.stream_planner import (
    check_offset,
    initial_offset,
    latest_offset,
    next_offset,
    planned_ranges,
)

LATEST_FIRST = OffsetChoice("startingOffsets", LATEST)


class Numbers:
    """What the planner asks of a store: bounds of queues and who they belong to."""

    def __init__(self, **topics):
        self.path, self.uuid, self.epoch, self.broker_name = Path("/s"), "uuid-1", 0, "broker-a"
        self.bounds = {
            name: {queue: QueueOffsets(*limits) for queue, limits in queues.items()}
            for name, queues in topics.items()
        }
        self.ids = {name: f"id-{name}" for name in topics}
        self.perm = 6
        self.cuts = {}

    def topics(self):
        return {n: TopicConfig(n, 4, 4, self.perm, self.ids[n]) for n in self.bounds}

    def topic(self, name):
        raise TopicNotFoundError(f"there is no topic {name!r}.")

    def offsets(self, topic):
        return self.bounds[topic]

    def cut_since(self, epoch, topic, queue_id):
        return self.cuts.get((topic, queue_id)) if epoch < self.epoch else None

    def grow(self, topic, queue, maximum, minimum=0):
        self.bounds.setdefault(topic, {})[queue] = QueueOffsets(minimum, maximum)
        self.ids.setdefault(topic, f"id-{topic}")


def options(*topics, **changes):
    return ReadOptions(path="/s", topics=topics or ("t",), **changes)


def through_spark(offset):
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


def step(store, start, asked=None, **limits):
    """One micro-batch, as Spark plans it: the end, and what its tasks read."""
    end = next_offset(store, asked or options(), start, **limits)
    if end is None:
        return start, []
    return through_spark(end), read(start, end)


def read(start, end):
    ranges = planned_ranges(start, through_spark(end))
    return [
        (each.topic, each.queue_id, each.start, each.end)
        for each in sorted(ranges)
        if each.start < each.end
    ]


def test_a_new_query_starts_where_it_was_told_to():
    store = Numbers(t={0: (5, 20), 1: (0, 7)})
    assert initial_offset(store, options()).offsets == {"t": {0: 5, 1: 0}}
    assert initial_offset(store, options(starting=LATEST_FIRST)).offsets == {"t": {0: 20, 1: 7}}


def test_batches_follow_each_other_without_gap_or_overlap():
    store = Numbers(t={0: (0, 3), 1: (0, 0)})
    start, seen = step(store, initial_offset(store, options()))
    assert seen == [("t", 0, 0, 3)]
    store.grow("t", 0, 5)
    store.grow("t", 1, 2)
    start, seen = step(store, start)
    assert seen == [("t", 0, 3, 5), ("t", 1, 0, 2)]
    assert step(store, start) == (start, [])


def test_nothing_new_is_said_as_such():
    store = Numbers(t={0: (0, 3)})
    start = initial_offset(store, options(starting=LATEST_FIRST))
    assert next_offset(store, options(), start) is None


def test_the_first_batch_is_replayed_as_planned_although_latest_has_moved():
    """Spark asks for the initial offset again when it replays batch 0; it is later then."""
    store = Numbers(t={0: (0, 10)})
    latest = options(starting=LATEST_FIRST)
    initial = initial_offset(store, latest)
    store.grow("t", 0, 15)
    end = next_offset(store, latest, initial)
    store.grow("t", 0, 40)
    later = initial_offset(store, latest)
    assert later.offsets == {"t": {0: 40}}
    assert read(later, end) == read(initial, end) == [("t", 0, 10, 15)]


def test_an_empty_first_batch_is_replayed_as_empty():
    store = Numbers(t={0: (0, 10)})
    latest = options(starting=LATEST_FIRST)
    end = initial_offset(store, latest)  # What a first batch without data ends at.
    store.grow("t", 0, 15)
    assert read(initial_offset(store, latest), end) == []
    assert step(store, end, latest)[1] == [("t", 0, 10, 15)]


def test_later_batches_begin_where_spark_says():
    store = Numbers(t={0: (0, 3)})
    start, _ = step(store, initial_offset(store, options()))
    store.grow("t", 0, 9)
    end = next_offset(store, options(), start)
    assert end.first == {}


def test_a_queue_found_later_starts_at_its_first_message_fixed_in_the_end_offset():
    store = Numbers(t={0: (0, 3)})
    start, _ = step(store, initial_offset(store, options()))
    store.grow("t", 1, maximum=9, minimum=4)
    end = next_offset(store, options(), start)
    assert end.first == {"t": {1: 4}}
    store.grow("t", 1, maximum=9, minimum=6)  # Cleaning may not change a planned batch.
    assert read(start, end) == [("t", 1, 4, 9)]


def test_a_new_queue_without_messages_makes_no_batch():
    store = Numbers(t={0: (0, 3)})
    start, _ = step(store, initial_offset(store, options()))
    store.grow("t", 1, 0)
    assert next_offset(store, options(), start) is None


def test_a_topic_that_comes_later_is_read_from_its_first_message():
    store = Numbers(t={0: (0, 3)})
    asked = options("t", "u", wait_for_topics=True, starting=LATEST_FIRST)
    start, _ = step(store, initial_offset(store, asked), asked)
    store.grow("u", 0, 2)
    start, seen = step(store, start, asked)
    assert seen == [("u", 0, 0, 2)]
    assert start.topic_ids == {"t": "id-t", "u": "id-u"}


@pytest.mark.parametrize("wait", [True, False])
def test_no_topic_at_all_is_an_error(wait):
    with pytest.raises(TopicNotFoundError, match="'u'"):
        initial_offset(Numbers(t={0: (0, 1)}), options("u", "v", wait_for_topics=wait))


def test_a_missing_topic_is_an_error_unless_it_is_waited_for():
    store = Numbers(t={0: (0, 1)})
    with pytest.raises(TopicNotFoundError, match="'u'"):
        initial_offset(store, options("t", "u"))
    assert initial_offset(store, options("t", "u", wait_for_topics=True)).offsets == {"t": {0: 0}}


def test_a_topic_that_may_not_be_read_is_named():
    store = Numbers(t={0: (0, 1)})
    store.perm = 2
    with pytest.raises(InvalidInputError) as info:
        initial_offset(store, options())
    assert info.value.code == "TOPIC_NOT_READABLE"


def test_a_queue_that_vanished_keeps_its_place():
    store = Numbers(t={0: (0, 3), 1: (0, 4)})
    start, _ = step(store, initial_offset(store, options()))
    del store.bounds["t"][1]
    store.grow("t", 0, 5)
    start, seen = step(store, start)
    assert seen == [("t", 0, 3, 5)]
    assert start.offsets == {"t": {0: 5, 1: 4}}
    store.grow("t", 1, 6)
    assert step(store, start)[1] == [("t", 1, 4, 6)]


def test_a_topic_that_vanished_while_it_is_waited_for_keeps_its_place():
    store = Numbers(t={0: (0, 3)}, u={0: (0, 2)})
    asked = options("t", "u", wait_for_topics=True)
    initial = initial_offset(store, asked)
    del store.bounds["u"]
    end = next_offset(store, asked, initial)
    assert end.offsets == {"t": {0: 3}, "u": {0: 0}}
    assert read(initial, end) == [("t", 0, 0, 3)]


def test_a_topic_no_longer_subscribed_keeps_its_place():
    store = Numbers(t={0: (0, 3)}, u={0: (0, 2)})
    start, _ = step(store, initial_offset(store, options("t", "u")), options("t", "u"))
    store.grow("t", 0, 9)
    store.grow("u", 0, 9)
    start, seen = step(store, start, options("t"))
    assert seen == [("t", 0, 3, 9)]
    assert start.offsets["u"] == {0: 2}


def test_a_rate_limit_is_shared_out_until_all_is_read():
    store = Numbers(t={0: (0, 90), 1: (0, 9), 2: (0, 1)})
    start, seen, taken = initial_offset(store, options()), [None], []
    while seen:
        start, seen = step(store, start, max_rows=20)
        taken.append(sum(end - begin for *_, begin, end in seen))
    assert taken == [20, 20, 20, 20, 20, 0]
    assert start.offsets == {"t": {0: 90, 1: 9, 2: 1}}


def test_a_target_is_reached_and_never_passed():
    store = Numbers(t={0: (0, 5)})
    target = {"t": {0: 5}}
    store.grow("t", 0, 50)
    store.grow("t", 1, 7)
    start, seen = step(store, initial_offset(store, options()), target=target, max_rows=3)
    assert [end - begin for *_, begin, end in seen] == [3]
    start, seen = step(store, start, target=target, max_rows=3)
    assert [end - begin for *_, begin, end in seen] == [2]
    assert next_offset(store, options(), start, target=target, max_rows=3) is None


def test_a_target_below_the_start_does_not_move_it_back():
    store = Numbers(t={0: (0, 9)})
    start = initial_offset(store, options(starting=LATEST_FIRST))
    assert next_offset(store, options(), start, target={"t": {0: 4}}) is None


def test_messages_deleted_before_they_were_read_are_a_loss():
    store = Numbers(t={0: (0, 3)})
    start, _ = step(store, initial_offset(store, options()))
    store.grow("t", 0, maximum=30, minimum=10)
    with pytest.raises(OffsetOutOfRangeError, match="'t', queue 0: offset 3 is outside 10 to 30"):
        next_offset(store, options(), start)


def test_a_queue_that_ends_before_the_checkpoint_is_a_loss():
    store = Numbers(t={0: (0, 9)})
    start, _ = step(store, initial_offset(store, options()))
    store.grow("t", 0, 5)
    with pytest.raises(DataLossError, match="offset 9 is outside 0 to 5"):
        next_offset(store, options(), start)


def test_a_topic_that_was_created_again_is_noticed():
    store = Numbers(t={0: (0, 3)})
    start, _ = step(store, initial_offset(store, options()))
    store.ids["t"] = "another"
    store.grow("t", 0, 9)
    with pytest.raises(TopicRecreatedError, match="'t' was deleted and created again"):
        next_offset(store, options(), start)
    with pytest.raises(TopicRecreatedError):
        check_offset(store, options(), start)


@pytest.mark.parametrize(("attribute", "other"), [("uuid", "uuid-2"), ("broker_name", "broker-b")])
def test_another_store_at_the_path_is_noticed(attribute, other):
    store = Numbers(t={0: (0, 3)})
    start, _ = step(store, initial_offset(store, options()))
    setattr(store, attribute, other)
    with pytest.raises(DataLossError, match=f"is (store|broker) {other}") as info:
        next_offset(store, options(), start)
    assert info.value.code == "STORE_CHANGED"


def test_a_store_that_gets_its_id_later_is_the_same_store():
    store = Numbers(t={0: (0, 3)})
    store.uuid, store.ids["t"] = "", ""
    start, _ = step(store, initial_offset(store, options()))
    store.uuid, store.ids["t"] = "uuid-1", "id-t"
    assert next_offset(store, options(), start) is None
    store.grow("t", 0, 4)
    start, _ = step(store, start)
    assert (start.store, start.topic_ids) == ("uuid-1", {"t": "id-t"})


def test_a_log_cut_below_what_was_read_is_noticed():
    store = Numbers(t={0: (0, 9)})
    start, _ = step(store, initial_offset(store, options()))
    store.epoch, store.cuts = 1, {("t", 0): 8}
    store.grow("t", 0, 30)  # Other messages have the offsets now.
    with pytest.raises(LogTruncatedError, match=r"queue 0 at offset 8.*up to 9"):
        next_offset(store, options(), start)


def test_a_recovery_that_cut_nothing_that_was_read_goes_unnoticed():
    store = Numbers(t={0: (0, 9)})
    start, _ = step(store, initial_offset(store, options()))
    store.epoch, store.cuts = 1, {("t", 0): 9}
    assert next_offset(store, options(), start) is None
    store.grow("t", 0, 10)
    start, seen = step(store, start)
    assert seen == [("t", 0, 9, 10)]
    assert start.epoch == 1


@pytest.mark.parametrize("end", [{"t": {0: 1}}, {"t": {7: 1}}])
def test_a_checkpoint_that_runs_backwards_is_damaged(end):
    store = Numbers(t={0: (0, 9)})
    start, _ = step(store, initial_offset(store, options()))
    broken = StreamOffset(store="", epoch=0, broker="broker-a", offsets=end, topic_ids={})
    with pytest.raises(DataLossError) as info:
        list(planned_ranges(start, broken))
    assert info.value.code == "CHECKPOINT_DAMAGED"


def test_the_end_of_all_queues_has_the_shape_of_an_end_offset():
    store = Numbers(t={0: (0, 9)})
    end = next_offset(store, options(), initial_offset(store, options()), max_rows=2)
    latest = latest_offset(store, options())
    assert latest.to_json().keys() == end.to_json().keys() - {"from"}
    assert latest.offsets == {"t": {0: 9}}


def test_ranges_name_topic_queue_and_both_ends():
    store = Numbers(t={0: (0, 9)})
    initial = initial_offset(store, options())
    end = next_offset(store, options(), initial)
    assert list(planned_ranges(initial, end)) == [QueueRange("t", 0, 0, 9)]
