"""Pending messages are listed with their due times, in read-only stores as well."""

import shutil

import pytest
from golden.java import GOLDEN, TXCHECK
from pyrocket import Store
from pyrocket.errors import SchemaError
from support.delivering import delay, level_batch
from support.stores import message

COLUMNS = ("topic", "queueId", "queueOffset", "body", "properties", "dueTimestamp")


def rows(store, kind="scheduled", topics=("t",), columns=COLUMNS, **options):
    """The pending messages of these topics as dictionaries, sorted by due time."""
    found = [
        row
        for part in store.views.pending(kind)
        for batch in store.views.scan_pending(part, topics, columns, **options)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: row.get("dueTimestamp") or 0) if found else []


def bodies(store, *arguments, **options):
    return [row["body"] for row in rows(store, *arguments, **options)]


def due_ms(row):
    return round(row["dueTimestamp"].timestamp() * 1000)


def test_delayed_messages_are_listed_with_topic_queue_and_due_time(open_store, clock):
    store = open_store()
    delay(store, 2, b"five", queue_id=3, tags="A", properties={"own": "1"})
    store.append(message(b"at", queue_id=1, deliver_at_ms=clock.now + 777))
    reader = open_store(read_only=True)
    first, second = rows(reader)
    assert (first["topic"], first["queueId"], first["body"]) == ("t", 1, b"at")
    assert due_ms(first) == clock.now + 777
    assert (second["queueId"], second["body"]) == (3, b"five")
    assert second["properties"] == [("own", "1")], "RocketMQ's own properties are hidden"
    assert due_ms(second) == clock.now + 5000
    assert second["queueOffset"] == 0


def test_cancelled_timer_is_not_pending(open_store, clock):
    store = open_store()
    sent = [store.append(message(b"%d" % n, deliver_at_ms=clock.now + 1000 + n)) for n in range(6)]
    assert store.timers.cancel("t", sent[2].msg_id)
    assert bodies(store) == [b"0", b"1", b"3", b"4", b"5"]


def test_a_plan_can_be_scanned_after_its_messages_were_delivered(open_store, clock):
    store = open_store()
    delay(store, 1, b"1", b"2")
    plan = store.views.pending("scheduled")
    clock.now += 1000
    store.deliver_due()
    found = [
        row for part in plan for batch in store.views.scan_pending(part, ["t"]) for row in batch[1]
    ]
    assert [body.as_py() for body in found] == [b"1", b"2"]
    assert store.views.pending("scheduled") == []


def test_many_pending_messages_are_planned_in_several_ranges(open_store, clock, monkeypatch):
    monkeypatch.setattr("pyrocket.views.pending.MAX_MESSAGES", 8)
    store = open_store()
    store.append_batch(level_batch([b"%02d" % number for number in range(20)]), topic="t")
    for number in range(20):
        # Every second message is due soon, so that there are gaps between the pending messages.
        at = clock.now + (500 if number % 2 else 90_000)
        store.append(message(b"%02d" % (20 + number), deliver_at_ms=at))
    clock.now += 500
    store.deliver_due()
    parts = store.views.pending("scheduled")
    assert [part.messages for part in parts] == [8, 8, 4, 8, 2]
    expected = [b"%02d" % number for number in [*range(20), *range(20, 40, 2)]]
    assert bodies(store) == expected


def test_half_messages_are_listed_until_decided(tmp_path):
    """The broker re-appended two messages three times, and discarded a third message."""
    root = shutil.copytree(GOLDEN / TXCHECK, tmp_path / "store")
    with Store.open(root, read_only=True) as store:
        columns = ("topic", "queueId", "body", "systemProperties")
        found = rows(store, "half", ("TopicTest",), columns)
    assert [(row["topic"], row["queueId"]) for row in found] == [("TopicTest", 0), ("TopicTest", 1)]
    assert {dict(row["systemProperties"])["TRANSACTION_CHECK_TIMES"] for row in found} == {"3"}


@pytest.mark.parametrize(
    ("kind", "columns"),
    [("half", ["dueTimestamp"]), ("scheduled", ["nope"]), ("scheduled", [])],
)
def test_unknown_columns_are_rejected_before_anything_is_read(open_store, kind, columns):
    from pyrocket import PendingRange

    store = open_store()
    topic = {"half": "RMQ_SYS_TRANS_HALF_TOPIC", "scheduled": "SCHEDULE_TOPIC_XXXX"}[kind]
    with pytest.raises(SchemaError) as caught:
        store.views.scan_pending(PendingRange(topic, 0, 0, 1), ["t"], columns)
    assert caught.value.code == "COLUMN_UNKNOWN"
