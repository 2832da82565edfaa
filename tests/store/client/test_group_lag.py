"""`lag` returns a group's lag in a directory and at brokers."""

import asyncio

import pytest
from pyrocket import Message, MessageQueue, Store, StoreConfig
from pyrocket.client import lag
from pyrocket.errors import GroupNotFoundError, InvalidInputError
from support.broker import served


def store_of(tmp_path, broker, messages):
    store = Store.open(tmp_path / broker, create=True, config=StoreConfig(broker_name=broker))
    store.topics.create("orders", read_queues=1, write_queues=1)
    for number in range(messages):
        store.append(Message(topic="orders", body=b"%d" % number))
    return store


@pytest.fixture
def store(tmp_path):
    store = store_of(tmp_path, "broker-a", messages=3)
    store.groups.commit("billing", "orders", {0: 1})
    return store


def test_the_lag_in_a_directory(store):
    found = lag("billing", path=store.path)
    assert [*found] == [MessageQueue("orders", "broker-a", 0)]
    (one,) = found.values()
    assert (one.lag, one.committed, one.maximum) == (2, 1, 3)
    with pytest.raises(GroupNotFoundError):
        lag("missing", path=store.path)


def test_the_lag_at_brokers_of_which_some_have_the_group(store, tmp_path):
    other = store_of(tmp_path, "broker-b", messages=5)
    with served(store) as first, served(other) as second:
        both = f"{first},{second}"

        async def in_an_event_loop():
            return lag("billing", endpoint=both)

        found = asyncio.run(in_an_event_loop())
        assert {queue.broker: one.lag for queue, one in found.items()} == {"broker-a": 2}
        other.groups.commit("billing", "orders", {0: 1})
        found = lag("billing", endpoint=both)
        assert [(queue.broker, one.lag) for queue, one in found.items()] == [
            ("broker-a", 2),
            ("broker-b", 4),
        ]
        with pytest.raises(GroupNotFoundError):
            lag("missing", endpoint=both)


def test_the_lag_of_no_server_or_of_two_is_refused(store):
    for servers in ({}, {"endpoint": "localhost:1", "path": store.path}):
        with pytest.raises(InvalidInputError) as caught:
            lag("billing", **servers)
        assert caught.value.code == "CLIENT_SERVER"
