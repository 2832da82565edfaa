"""Key index: pyrocket finds messages that RocketMQ indexed, and RocketMQ finds those that pyrocket
indexed, in any time zone."""

import time

import pytest
from interop.compare import of_java, of_ours
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import written
from pyrocket import Message, Store
from pyrocket.formats.message_keys import offset_message_id

FAR_WEST, FAR_EAST = "Pacific/Honolulu", "Pacific/Auckland"


def in_zone(zone):
    return {"jvm": [f"-Duser.timezone={zone}"]}


def ours(store, topic, key):
    return [of_ours(message) for message in store.lookup.query(topic, key)]


def java_s(broker, topic, key):
    return [of_java(one) for one in broker.query(topic, key)]


def index_files(path):
    return sorted((path / "index").glob("*"))


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_keys_that_rocketmq_indexed_are_found_by_pyrocket(java, store_path, ending):
    messages = [outgoing(b"%d" % n, keys=f"one{n} ten{n // 10}") for n in range(250)]
    with java.broker(store_path, **SMALL) as broker:
        sent = java.peer.send("t", messages, queues=2)
        asked = ["one0", "one77", "one249", "ten0", "ten24", "none"]
        found = {key: java_s(broker, "t", key) for key in asked}
        offset_id = sent[9]["offsetMsgId"]
        viewed = of_java(broker.view("t", offset_id))
        assert of_java(broker.view("t", sent[9]["msgId"])) == viewed
        getattr(broker, ending)()
    assert [len(found[key]) for key in asked] == [1, 1, 1, 10, 10, 0]
    assert len(index_files(store_path)) > 1, "index files rolled over"
    with Store.open(store_path, read_only=True) as store:
        check_lookups(store, found, viewed, offset_id)
    with Store.open(store_path) as store:
        check_lookups(store, found, viewed, offset_id)
        for n in range(250, 400):
            store.append(Message(topic="t", body=b"%d" % n, keys=[f"one{n}", "ten24"]))
        check_lookups(store, found | {"ten24": ours(store, "t", "ten24")}, viewed, offset_id)
        assert len(ours(store, "t", "ten24")) == 64, "the newest messages, up to RocketMQ's limit"
        newest = ours(store, "t", "one399")
    with java.broker(store_path, **SMALL) as broker:
        for key in asked[:4]:
            assert java_s(broker, "t", key) == found[key], key
        assert java_s(broker, "t", "one399") == newest


def check_lookups(store, found, viewed, offset_id):
    for key, expected in found.items():
        assert ours(store, "t", key) == expected, key
    assert of_ours(store.lookup.by_offset_id(offset_id)) == viewed
    assert of_ours(store.lookup.by_id("t", viewed["msg_id"])) == viewed


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "unclean"])
@pytest.mark.parametrize("zone", [FAR_WEST, FAR_EAST])
def test_keys_that_pyrocket_indexed_are_found_by_rocketmq(java, store_path, clean, zone):
    store = written(store_path)
    keys = {"orders": ["key0", "key60", "tens3", "packed"], "events": ["key2"], "wide": ["wide79"]}
    found = {(topic, key): ours(store, topic, key) for topic in keys for key in keys[topic]}
    assert all(found.values())
    unique = found["orders", "key60"][0]
    store.close(clean=clean)
    assert len(index_files(store_path)) > 1 or not clean, "index files rolled over"
    with java.broker(store_path, **SMALL, **in_zone(zone)) as broker:
        for (topic, key), expected in found.items():
            assert java_s(broker, topic, key) == expected, key
        offset_id = offset_message_id(bytes((127, 0, 0, 1)), broker.port, unique["physical_offset"])
        for message_id in (offset_id, unique["msg_id"]):
            assert of_java(broker.view("orders", message_id)) == unique
        messages = [outgoing(b"%d" % n, keys=f"java{n} tens3") for n in range(200)]
        java.peer.send("orders", messages)
        found["orders", "tens3"] = java_s(broker, "orders", "tens3")
        assert len(found["orders", "tens3"]) == 64
        found["orders", "java150"] = java_s(broker, "orders", "java150")
        broker.kill()
    with Store.open(store_path) as store:
        for (topic, key), expected in found.items():
            assert ours(store, topic, key) == expected, key
        for n in range(150):
            store.append(Message(topic="orders", body=b"%d" % n, keys=[f"again{n}"]))
        found["orders", "again149"] = ours(store, "orders", "again149")
    with java.broker(store_path, **SMALL) as broker:
        for (topic, key), expected in found.items():
            assert java_s(broker, topic, key) == expected, key


def test_pyrocket_finds_all_keys_after_rocketmq_has_indexed_only_the_newest(java, store_path):
    """After an unclean shutdown, RocketMQ deletes index files that are not full and indexes the
    messages after the checkpoint. RocketMQ no longer finds older keys; pyrocket must still find
    them.
    """
    store = written(store_path)
    store.flush()
    time.sleep(4)  # RocketMQ subtracts three seconds from the checkpoint's time.
    for n in range(200):
        store.append(Message(topic="orders", body=b"y" * 2000, keys=[f"late{n}"]))
    store.flush()
    time.sleep(1)
    store.close(clean=False)
    with java.broker(store_path, **SMALL) as broker:
        assert not java_s(broker, "orders", "key0"), "RocketMQ no longer finds it"
        assert len(java_s(broker, "orders", "late199")) == 1
    with Store.open(store_path) as store:
        for key in ("key0", "key60", "late0", "late199"):
            assert len(ours(store, "orders", key)) == 1, key
