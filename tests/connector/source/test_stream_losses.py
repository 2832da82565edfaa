"""Messages that a stream can no longer read, and offsets that are no longer valid, are reported."""

import pytest
from pyrocket import SourceIdentity
from pyrocket.errors import (
    DataLossError,
)
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.source.stream_planner import initial_offset, next_offset, planned_ranges
from support.offsets import BROKER, offsets


def options(*topics, **changes):
    return ReadOptions(path="/s", subscription=SubscribedTopics(topics or ("t",)), **changes)


@pytest.mark.parametrize(("attribute", "other"), [("uuid", "uuid-2"), ("broker", "broker-b")])
def test_other_store_at_the_path_is_detected(numbers, attribute, other):
    store = numbers(t={0: (0, 3)})
    start, _ = store.step(initial_offset(store, options()))
    setattr(store, attribute, other)
    with pytest.raises(DataLossError, match=f"is (store|broker) {other}") as info:
        next_offset(store, options(), start)
    assert info.value.code == "STORE_CHANGED"


def test_store_that_receives_its_id_later_is_the_same_store(numbers):
    store = numbers(t={0: (0, 3)})
    store.uuid, store.ids["t"] = "", ""
    start, _ = store.step(initial_offset(store, options()))
    store.uuid, store.ids["t"] = "uuid-1", "id-t"
    assert next_offset(store, options(), start) is None
    store.grow("t", 0, 4)
    start, _ = store.step(start)
    assert start.brokers[BROKER].store == "uuid-1"
    assert start.topic_ids == {"t": {BROKER: "id-t"}}


def test_recovery_that_truncated_only_unread_messages_is_not_data_loss(numbers):
    store = numbers(t={0: (0, 9)})
    start, _ = store.step(initial_offset(store, options()))
    store.epoch, store.cuts = 1, {("t", 0): 9}
    assert next_offset(store, options(), start) is None
    store.grow("t", 0, 10)
    start, seen = store.step(start)
    assert seen == [("t", 0, 9, 10)]
    assert start.brokers[BROKER].epoch == 1


@pytest.mark.parametrize("end", [{"t": {0: 1}}, {"t": {7: 1}}])
def test_checkpoint_whose_offsets_decrease_is_damaged(numbers, end):
    store = numbers(t={0: (0, 9)})
    start, _ = store.step(initial_offset(store, options()))
    brokers = {BROKER: SourceIdentity(store="", epoch=0)}
    broken = StreamOffset(brokers=brokers, offsets=offsets(end), topic_ids={})
    with pytest.raises(DataLossError) as info:
        list(planned_ranges(start, broken))
    assert info.value.code == "CHECKPOINT_DAMAGED"
