"""Remote administration has the same results as `Store.topics`, `Store.groups` and `Store`."""

import os
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from pyrocket import AtTime, Message, Retention, Store, StoreConfig
from pyrocket.errors import (
    GroupNameError,
    GroupNotFoundError,
    InvalidInputError,
    OptionError,
    TopicNameError,
    TopicNotFoundError,
)
from pyrocket.remote.admin import RemoteAdmin
from pyrocket.remote.client import Client, Connection
from pyrocket.values.admin import Backoff
from support.broker import join_group, served


@pytest.fixture
def place(tmp_path):
    config = StoreConfig(log_file_bytes=64 * 1024)
    path = tmp_path / "store"
    with Store.open(path, create=True, config=config) as store, served(store) as address:
        client = Client(Connection(address))
        yield store, RemoteAdmin(client)
        client.close()


def test_a_group_with_members_is_reset_only_with_force(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store, served(store) as address:
        store.topics.create("orders", read_queues=1, write_queues=1)
        store.groups.commit("readers", "orders", {0: 0})
        join_group(address, "readers", "c1", orders="*")
        client = Client(Connection(address))
        admin = RemoteAdmin(client)
        with pytest.raises(InvalidInputError, match="c1") as caught:
            admin.reset_group("readers", "orders", "latest")
        assert caught.value.code == "GROUP_HAS_MEMBERS"
        assert [one.client_id for one in admin.members("readers")] == ["c1"]
        assert admin.reset_group("readers", "orders", "latest", force=True) == {0: 0}
        assert admin.members("readers") == []
        client.close()


def test_topics_are_created_changed_and_deleted(place):
    store, admin = place
    made = admin.create_topic("orders", read_queues=2, write_queues=3)
    assert made == store.topics.get("orders") == admin.create_topic("orders")
    with pytest.raises(InvalidInputError) as caught:
        admin.create_topic("orders", exist_ok=False)
    assert caught.value.code == "TOPIC_EXISTS"
    assert admin.update_topic("orders", write_queues=2).write_queues == 2
    assert admin.update_topic("orders", perm=4) == store.topics.get("orders")
    assert admin.topics() == dict(store.topics.all())
    assert admin.message_type("orders") == ""
    assert admin.update_topic("orders", message_type="FIFO") == store.topics.get("orders")
    assert admin.message_type("orders") == store.topics.message_type("orders") == "FIFO"
    admin.delete_topic("orders")
    assert "orders" not in store.topics.all()
    for wrong, error in (
        (lambda: admin.create_topic("rmq_sys_x"), TopicNameError),
        (lambda: admin.create_topic("a", read_queues=-1), InvalidInputError),
        (lambda: admin.update_topic("orders", perm=6), TopicNotFoundError),
        (lambda: admin.update_topic("orders", message_type="FIFO"), TopicNotFoundError),
        (lambda: admin.update_topic("SCHEDULE_TOPIC_XXXX", message_type="FIFO"), TopicNameError),
        (lambda: admin.message_type("orders"), TopicNotFoundError),
        (lambda: admin.delete_topic("orders"), TopicNotFoundError),
    ):
        with pytest.raises(error):
            wrong()
    # The client repeats a call after a lost reply.
    admin._client.call("DeleteTopic", name="orders")


def test_groups_are_created_changed_reset_and_deleted(place):
    store, admin = place
    store.append_batch(pa.record_batch({"body": [b"x"] * 8}), topic="orders", first_queue=0)
    assert admin.create_group("readers") == store.groups.get("readers")
    changed = admin.update_group("readers", fifo=True, backoff=Backoff(initial_ms=5, max_ms=9))
    assert changed == store.groups.get("readers") == admin.group("readers")
    assert (changed.fifo, changed.retry_max_times, changed.backoff.max_ms) == (True, 16, 9)
    assert admin.groups() == store.groups.all()
    ends = dict.fromkeys(range(4), 2)
    assert admin.reset_group("readers", "orders", "latest") == ends
    assert admin.reset_group("readers", "orders", {1: 0}) == {**ends, 1: 0}
    assert admin.reset_group("readers", "orders", AtTime(0)) == dict.fromkeys(range(4), 0)
    assert store.groups.committed("readers", "orders") == dict.fromkeys(range(4), 0)
    with pytest.raises(OptionError):
        admin._client.call("ResetGroup", group="readers", topic="orders")
    with pytest.raises(OptionError):
        admin._client.call("ResetGroup", group="readers", topic="orders", rule="first", time_ms=0)
    with pytest.raises(GroupNameError):
        admin.create_group("a b")
    admin.delete_group("readers")
    assert not store.groups.all()
    with pytest.raises(GroupNotFoundError):
        admin.delete_group("readers")
    admin._client.call("DeleteGroup", group="readers")


def test_the_lag_of_a_group_is_that_of_the_store(place):
    store, admin = place
    store.topics.create("t", read_queues=2, write_queues=2)
    for number in range(3):
        store.append(Message(topic="t", body=b"1", queue_id=number % 2))
    store.groups.commit("etl", "t", {0: 1})
    time.sleep(0.005)
    found = admin.lag("etl")
    assert [(one.committed, one.start, one.lag) for one in found] == [(1, 1, 1), (None, 0, 1)]
    assert all(one.delay_ms > 0 for one in found)
    assert [replace(one, delay_ms=0) for one in found] == [
        replace(one, delay_ms=0) for one in store.groups.lag("etl")
    ]
    for missing in ("elt", ""):
        with pytest.raises(GroupNotFoundError):
            admin.lag(missing)


def test_retention_is_changed_and_old_log_files_are_deleted(place):
    store, admin = place
    assert admin.retention is None
    kept = Retention(hours=None, total_bytes=100_000, at_hours=(4, 5))
    admin.set_retention(kept)
    assert admin.retention == store.retention == kept
    admin.set_retention(None)
    assert admin.retention is None
    for _ in range(10):
        store.append_batch(pa.record_batch({"body": [os.urandom(10_000)] * 5}), topic="orders")
    planned = admin.clean(total_bytes=200_000, dry_run=True)
    assert planned == store.clean(total_bytes=200_000, dry_run=True)
    assert planned.removals
    assert admin.clean(total_bytes=200_000).removals == planned.removals
    assert not admin.clean(total_bytes=200_000).removals
