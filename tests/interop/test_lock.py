"""A RocketMQ broker and a pyrocket writer on one store: the second process is rejected, and its
attempt loses no message.
"""

import threading
import time

import pytest
from interop.compare import assert_same, bodies, read_all
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import COMMITTED, GROUP, written
from pyrocket import Message, Store
from pyrocket.errors import StoreLockedError


class Appending(threading.Thread):
    """Appends to topic `busy` and commits offsets of a group, until it is stopped."""

    def __init__(self, store):
        super().__init__(daemon=True)
        self.store, self.ended = store, threading.Event()
        self.acknowledged, self.error = [], None

    def run(self):
        try:
            while not self.ended.wait(0.002):
                body = b"busy%d " % len(self.acknowledged) + b"." * 500
                self.store.append(Message(topic="busy", body=body, queue_id=0))
                self.acknowledged.append(body)
                if len(self.acknowledged) % 50 == 0:
                    offsets = {0: len(self.acknowledged)}
                    self.store.groups.commit("busy", "busy", offsets)
        except BaseException as error:
            self.error = error

    def end(self):
        self.ended.set()
        self.join(30)
        assert self.error is None
        return self.acknowledged


def test_a_broker_is_rejected_while_pyrocket_writes_and_damages_nothing(java, store_path):
    store = written(store_path)
    before = read_all(store_path, [("orders", 0), ("orders", 1), ("wide", 0)])
    appending = Appending(store)
    appending.start()
    broker = java.broker(store_path, **SMALL)
    assert broker.exit_status() != 0
    assert any("Lock failed" in text for _, text in broker.logs())
    acknowledged = appending.end()
    assert len(acknowledged) > 100, "appends continued"
    store.groups.commit("busy", "busy", {0: len(acknowledged)})
    store.close()
    assert not (store_path / "abort").exists()
    after = read_all(store_path, before)
    assert after == before
    with Store.open(store_path) as store:
        found = store.read("busy", 0, 0, 10**6)
        assert [message.body for message in found] == acknowledged
        assert store.groups.committed(GROUP, "orders") == COMMITTED
        assert store.groups.committed("busy", "busy") == {0: len(acknowledged)}
    with java.broker(store_path, **SMALL) as broker:
        pulled = broker.pull()
        assert bodies(pulled, "busy")[0] == acknowledged
        assert broker.committed(GROUP, "orders", 0) == COMMITTED[0]
        assert broker.committed("busy", "busy", 0) == len(acknowledged)
    assert_same(store_path, pulled)


def refused(java, path):
    """Start a broker on a store in use, and wait until it exits. It loads the store before it
    checks the lock.
    """
    broker = java.broker(path, **SMALL)
    assert broker.exit_status() != 0


def test_keys_are_found_after_a_broker_was_rejected(java, store_path):
    """While loading, the broker creates index files, because the store was not shut down
    cleanly.
    """
    with written(store_path) as store:
        store.flush()
        time.sleep(1)
        refused(java, store_path)
        for topic, key in (("orders", "key0"), ("orders", "key60"), ("wide", "wide79")):
            assert len(store.lookup.query(topic, key)) == 1, key


def test_topics_created_while_a_broker_is_rejected_remain(java, store_path):
    """When it exits, a RocketMQ 5 broker writes its tables as it loaded them."""
    made, ended = [], threading.Event()
    with written(store_path) as store:

        def make_topics():
            while not ended.wait(0.03):
                made.append(f"made{len(made)}")
                store.topics.create(made[-1], read_queues=1, write_queues=1)

        maker = threading.Thread(target=make_topics)
        maker.start()
        refused(java, store_path)
        ended.set()
        maker.join()
        assert not [name for name in made if name not in store.topics.all()]


def names(path):
    return {str(entry.relative_to(path)) for entry in path.rglob("*")}


def test_a_writer_is_rejected_while_a_broker_runs(java, store_path):
    with java.broker(store_path, **SMALL) as broker:
        java.peer.send("t", [outgoing(b"one")], queues=1)
        with pytest.raises(StoreLockedError) as caught:
            Store.open(store_path)
        assert caught.value.code == "STORE_IN_USE"
        java.peer.send("t", [outgoing(b"two")])
        pulled = broker.pull()
        assert bodies(pulled, "t")[0] == [b"one", b"two"]
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        store.append(Message(topic="t", body=b"three", queue_id=0))
        assert [message.body for message in store.read("t", 0, 0)] == [b"one", b"two", b"three"]


def test_a_reader_follows_a_running_broker_without_changing_the_store(java, store_path):
    with java.broker(store_path, **SMALL) as broker:
        java.peer.send("t", [outgoing(b"0")], queues=1)
        pulled = broker.pull([("t", 0)])
        before = names(store_path)
        with Store.open(store_path, read_only=True) as store:
            assert store.uuid == ""
            for number in range(1, 8):
                position = store.position()
                body = b"%d " % number * 5000
                java.peer.send("t", [outgoing(body, queue=0)] * (20 if number == 7 else 1))
                pulled = broker.pull([("t", 0)])
                assert store.position() != position
                assert store.max_offset("t", 0) == pulled["t", 0]["max"]
                assert [m.body for m in store.read("t", 0, 0, 1000)] == bodies(pulled, "t")[0]
                assert store.position() == store.position()
            java.peer.send("born", [outgoing(b"later")], queues=1)
            broker.pull([("born", 0)])
            assert store.read("born", 0, 0)[0].body == b"later"
            assert_same(store_path, broker.pull())
        assert not [name for name in names(store_path) - before if "pyrocket" in name]
    assert not (store_path / "pyrocket").exists()
