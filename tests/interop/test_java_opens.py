"""A RocketMQ broker opens a store after pyrocket's clean shutdown or crash; then the broker writes,
and pyrocket reads.
"""

import random
import time

import pytest
from crash.children import produce
from crash.nursery import wait_for
from interop.compare import assert_same, bodies, of_java, read_all
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import (
    COMMITTED,
    GROUP,
    SIZES,
    append_delayed,
    append_half,
    name_system_topics,
    written,
)
from interop.workload import DELAYED, HALF, OPS, wait_until
from pyrocket import Store, StoreConfig
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.formats.record import STORE_HOST
from support.stores import log_files, queue_files


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "unclean"])
def test_a_broker_serves_all_messages_of_pyrocket_and_continues(java, store_path, clean):
    written(store_path).close(clean=clean)
    assert len(log_files(store_path)) > 5
    assert len(queue_files(store_path, "orders", 0)) > 1
    assert (store_path / "abort").exists() != clean
    with java.broker(store_path, **SMALL) as broker:
        ours = read_all(store_path, broker.queues_on_disk())
        assert_same(store_path, pulled := broker.pull())
        assert {name: found["max"] for name, found in ours.items()} == {
            name: found["max"] for name, found in pulled.items()
        }
        check_offsets(broker)
        check_ids(java.peer, pulled)
        java.peer.send("orders", [outgoing(b"java%d" % n, tags="J") for n in range(70)])
        java.peer.send("new", [outgoing(b"new")], queues=1)
        pulled = broker.pull()
        broker.commit(GROUP, "orders", 1, 9)
        broker.stop()
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        assert store.groups.committed(GROUP, "orders") == COMMITTED | {1: 9}
        assert [message.body for message in store.read("new", 0, 0)] == [b"new"]


def check_offsets(broker):
    for queue_id, offset in COMMITTED.items():
        assert broker.committed(GROUP, "orders", queue_id) == offset


def check_ids(peer, pulled):
    """Check that the broker finds a message by the offset id that pyrocket returns."""
    found = of_java(pulled["orders", 0]["messages"][3])
    offset_id = offset_message_id(*STORE_HOST, found["physical_offset"])
    assert offset_id.startswith("7F000001")
    assert found["store_host"] == "127.0.0.1:10911"


def test_a_broker_delivers_pyrockets_delayed_message_and_checks_its_half_message(java, store_path):
    with written(store_path) as store:
        name_system_topics(store)
        append_delayed(store)
        append_half(store)
    checks = {"transactionCheckInterval": 2000, "transactionTimeOut": 500}
    with java.broker(store_path, **SMALL, **checks) as broker:
        asked = java.peer.ask(
            "checks", topic="orders", group="payers", state="COMMIT_MESSAGE", count=1, seconds=30
        )
        assert [of_java(one)["body"] for one in asked] == [b"half"]

        def arrived():
            pulled = broker.pull()
            last = {queue_id: found[-1] for queue_id, found in bodies(pulled, "orders").items()}
            # Another check may have re-appended the half message before the decision was recorded.
            return pulled if last == {0: b"half", 1: b"late"} and bodies(pulled, OPS) else None

        wait_until(arrived)
        broker.kill()
    with Store.open(store_path) as store:
        late, half = store.read("orders", 1, 0, 1000)[-1], store.read("orders", 0, 0, 1000)[-1]
        assert (late.body, late.properties["REAL_QID"]) == (b"late", "1")
        assert (half.body, half.sys_flag & 0xC) == (b"half", 0x8)
        assert half.prepared_transaction_offset >= store.read(HALF, 0, 0)[0].physical_offset
        assert store.read(DELAYED, 0, 0)[0].body == b"late"


def test_writers_killed_during_an_append_lose_no_acknowledged_message(
    java, store_path, tmp_path, nursery
):
    seed = random.randrange(10**6)
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    with Store.open(store_path, create=True, config=SIZES) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
    children = [
        nursery.start(
            produce, path=store_path, diaries=diaries, producer=f"p{n}", count=10**6, seed=seed + n
        )
        for n in range(3)
    ]
    for n in range(3):
        while not wait_for(diaries / f"p{n}").stat().st_size:
            time.sleep(0.001)
    time.sleep(random.Random(seed).uniform(0.3, 0.8))
    for child in children:
        nursery.kill(child)
    ours = read_all(store_path, [("t", 0), ("t", 1)])
    with java.broker(store_path, **SMALL) as broker:
        pulled = broker.pull()
        check_nothing_lost(diaries, ours, pulled)
        java.peer.send("t", [outgoing(b"java:%d:" % n, queue=n % 2) for n in range(50)])
        pulled = broker.pull()
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        assert store.max_offset("t", 0) == pulled["t", 0]["max"]


def check_nothing_lost(diaries, ours, pulled):
    """Check that the broker reads all acknowledged messages, and no message twice."""
    numbers = {}
    for name, found in ours.items():
        seen = [of_java(one) for one in pulled[name]["messages"]]
        assert seen[: len(found["messages"])] == found["messages"]
        for body in bodies(pulled, "t")[name[1]]:
            producer, number, _ = body.decode().split(":")
            numbers.setdefault(producer, []).append(int(number))
    for diary in diaries.iterdir():
        acknowledged = int((diary.read_text().split() or ["0"])[-1])
        found = sorted(numbers[diary.name])
        assert found[:acknowledged] == list(range(acknowledged)), diary.name
        assert len(found) == len(set(found)), "no message is duplicated"


def test_a_broker_continues_a_store_with_files_of_the_default_sizes(java, store_path):
    written(store_path, StoreConfig(), rounds=1).close()
    with java.broker(store_path) as broker:
        assert_same(store_path, broker.pull())
        java.peer.send("orders", [outgoing(b"java%d" % n) for n in range(10)])
        pulled = broker.pull()
    assert_same(store_path, pulled)
    assert {file.stat().st_size for file in log_files(store_path)} == {1 << 30}
    taken = sum(path.stat().st_blocks * 512 for path in store_path.rglob("*"))
    assert taken < 64 << 20, "sparse files stay sparse"
