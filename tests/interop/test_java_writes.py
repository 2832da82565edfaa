"""A RocketMQ broker writes, and pyrocket reads all messages. Then pyrocket appends and the broker
reads, and the broker appends and pyrocket reads.
"""

import pytest
from interop.compare import all_bodies, assert_same, bodies, of_java
from interop.rocketmq import SMALL, outgoing
from interop.workload import DELAYED, HALF, name_transaction_topics, steady, write_everything
from pyrocket import Message, Store
from support.stores import log_files, snapshot


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_every_kind_of_message_is_read_and_the_log_continues(java, store_path, ending):
    name_transaction_topics(store_path)
    with java.broker(store_path, **SMALL) as broker:
        sent, pulled = write_everything(java, broker)
        assert broker.queues_on_disk() == sorted(pulled)
        getattr(broker, ending)()
    check_kinds(sent, pulled)
    assert len(log_files(store_path)) > 2, "log files rolled over"
    assert (store_path / "abort").exists() == (ending == "kill")
    before = snapshot(store_path)
    assert_same(store_path, pulled)
    check_views(store_path, pulled)
    assert snapshot(store_path) == before, "reading changes nothing"

    ours = append_ours(store_path)
    with java.broker(store_path, **SMALL) as broker:
        again = broker.pull()
        for name, found in pulled.items():
            kept = again[name]["messages"][: len(found["messages"])]
            assert [of_java(one) for one in kept] == [of_java(one) for one in found["messages"]]
        java.peer.send("orders", [outgoing(b"java again %d" % n) for n in range(20)])
        final = steady(broker)
        broker.stop()
    assert_same(store_path, final)
    check_continued(pulled, final, ours)


def check_kinds(sent, pulled):
    """Check that the store contains the kinds of messages under test."""
    for topic, expected in sent.items():
        assert sorted(all_bodies(pulled, topic)) == sorted(expected), topic
    messages = {name: [of_java(one) for one in found["messages"]] for name, found in pulled.items()}
    assert {one["sys_flag"] & 0x700 for one in messages["packed", 0]} == {0x100, 0x200, 0x300}
    assert [one["body"] for one in messages[HALF, 0]] == [
        b"COMMIT_MESSAGE",
        b"ROLLBACK_MESSAGE",
        b"UNKNOW",
    ]
    (paid,) = (one for name, found in messages.items() if name[0] == "paid" for one in found)
    assert paid["sys_flag"] & 0xC == 0x8
    assert paid["prepared_transaction_offset"] == messages[HALF, 0][0]["physical_offset"]
    parked = [one["properties"]["REAL_TOPIC"] for one in messages[DELAYED, 0]]
    assert sorted(parked) == ["%RETRY%workers", "late", "late"]
    (retried,), (given_up,) = messages["%RETRY%workers", 0], messages["%DLQ%workers", 0]
    assert (retried["body"], retried["reconsume_times"]) == (b"bad", 1)
    assert (given_up["body"], given_up["reconsume_times"]) == (b"bad", 2)


def check_views(path, pulled):
    """Check that the views show retried messages, dead letters, and every record of the log."""
    for view, topic in (("retry", "%RETRY%workers"), ("dlq", "%DLQ%workers")):
        columns = ["originTopic", "originMsgId", "physicalOffset", "storeTimestamp"]
        rows = {row["physicalOffset"]: row for row in view_rows(path, view, columns, "workers")}
        (java,) = pulled[topic, 0]["messages"]
        row = rows[java["physicalOffset"]]
        assert row["originTopic"] == java["properties"]["RETRY_TOPIC"] == "work"
        assert row["originMsgId"] == java["properties"]["ORIGIN_MESSAGE_ID"]
    log = view_rows(path, "commitlog", ["topic", "physicalOffset"])
    there = {(row["topic"], row["physicalOffset"]) for row in log}
    for (topic, _), found in pulled.items():
        assert {(topic, one["physicalOffset"]) for one in found["messages"]} <= there


def view_rows(path, view, columns, group=""):
    with Store.open(path, read_only=True) as store:
        return [
            row
            for part in store.views.plan(view, group=group)
            for batch in store.views.scan(part, columns)
            for row in batch.to_pylist()
        ]


def append_ours(path):
    """Append single messages and a batch; return their bodies."""
    added = [b"ours%d" % n for n in range(50)]
    with Store.open(path) as store:
        for n, body in enumerate(added):
            store.append(Message(topic="orders", body=body, tags="ours", keys=[f"ours{n}"]))
        store.append(Message(topic="orders", body=b"z" * 9000, tags="ours"))
    assert not (path / "abort").exists()
    return [*added, b"z" * 9000]


def check_continued(before, after, ours):
    theirs = [b"java again %d" % n for n in range(20)]
    expected = all_bodies(before, "orders") + ours + theirs
    assert sorted(all_bodies(after, "orders")) == sorted(expected)


def test_messages_with_ipv6_hosts_are_read(java, store_path):
    config = SMALL | {"address": "::1"}
    with java.broker(store_path, **config) as broker:
        java.peer.send("six", [outgoing(b"six%d" % n, keys=f"k{n}") for n in range(3)], queues=1)
        pulled = broker.pull()
    hosts = {one["storeHost"] for one in pulled["six", 0]["messages"]}
    assert hosts == {f"/[0:0:0:0:0:0:0:1]:{broker.port}"}
    assert all(one["sysFlag"] & 0x30 == 0x30 for one in pulled["six", 0]["messages"])
    assert_same(store_path, pulled)
    append = Message(topic="six", body=b"ours", queue_id=0)
    with Store.open(store_path) as store:
        store.append(append)
    with java.broker(store_path, **config) as broker:
        assert bodies(broker.pull(), "six")[0] == [b"six0", b"six1", b"six2", b"ours"]
