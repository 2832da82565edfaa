"""`Store.groups.lag`: the messages that groups have not consumed."""

from dataclasses import replace

import pytest
from pyrocket import Message, Store
from pyrocket.errors import GroupNotFoundError, InvalidInputError
from pyrocket.values.admin import GroupLag
from support.stores import SMALL, FakeClock, overwrite, queue_files


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with Store.open(tmp_path / "s", create=True, config=SMALL, clock=clock) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        for number in range(5):
            store.append(Message(topic="t", body=b"%d" % number, queue_id=number % 2))
            clock.now += 1000
        store.groups.commit("billing", "t", {0: 1})
        yield store


def test_lag_and_delay_start_at_the_committed_offset_or_at_the_minimum(store):
    first, second = store.groups.lag("billing")
    assert (first.topic, first.queue_id, first.committed) == ("t", 0, 1)
    assert (first.start, first.lag, first.delay_ms) == (1, 2, 3000)
    assert (second.queue_id, second.committed) == (1, None)
    assert (second.start, second.lag, second.delay_ms) == (0, 2, 4000)


def test_the_delay_grows_with_time_until_the_message_is_consumed(store, clock):
    clock.now += 500
    assert store.groups.lag("billing")[0].delay_ms == 3500
    store.groups.commit("billing", "t", {0: 3})
    assert (store.groups.lag("billing")[0].lag, store.groups.lag("billing")[0].delay_ms) == (0, 0)


def test_all_groups_are_returned_by_name_and_groups_without_offsets_have_no_lag(store):
    store.groups.create("idle")
    store.groups.commit("audit", "t", {0: 3, 1: 2})
    assert [(one.group, one.lag) for one in store.groups.lag()] == [
        ("audit", 0),
        ("audit", 0),
        ("billing", 2),
        ("billing", 2),
    ]
    assert store.groups.lag("idle") == []


def test_a_reader_has_the_same_lag(store):
    with Store.open(store.path, read_only=True, clock=FakeClock(store.now())) as reader:
        assert reader.groups.lag() == store.groups.lag()


def test_deleted_messages_are_lost_and_offsets_beyond_the_end_are_counted():
    one = GroupLag("g", "t", 0, committed=3, minimum=5, maximum=9)
    assert (one.start, one.lag, one.lost, one.beyond_end) == (5, 4, 2, 0)
    beyond = replace(one, committed=12)
    assert (beyond.start, beyond.lag, beyond.lost, beyond.beyond_end) == (9, 0, 0, 3)
    new = replace(one, committed=None)
    assert (new.start, new.lag, new.lost, new.beyond_end) == (5, 4, 0, 0)


def test_a_group_that_does_not_exist_is_an_error_that_suggests_the_nearest(store):
    with pytest.raises(GroupNotFoundError) as caught:
        store.groups.lag("bilin")
    assert "'billing'" in caught.value.remedy
    with pytest.raises(InvalidInputError):
        store.groups.lag(5)


def test_the_delay_of_a_message_without_a_queue_entry_is_not_known(store):
    overwrite(queue_files(store.path)[0], bytes(20), 20)
    corrupt = store.groups.lag("billing")[0]
    assert (corrupt.lag, corrupt.delay_ms) == (2, 0)
