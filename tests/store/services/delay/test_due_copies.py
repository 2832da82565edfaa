"""A delivered record differs from the pending record only in its offsets and store time."""

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import TopicConfig
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import SYS_COMMIT, encode_record
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.services.delay.copies import due_copies

TOPICS = {name: TopicConfig(name, 2, 2) for name in ("t", "u", HALF_TOPIC, SCHEDULE_TOPIC)}
TOPICS |= {TIMER_TOPIC: TopicConfig(TIMER_TOPIC, 1, 1), "x" * 127: TopicConfig("x" * 127, 1, 1)}
OWN = {"UNIQ_KEY": "K1", "DELAY": "1", "TAGS": "A"}


def parked(body=b"x", topic="t", queue_id="1", **more):
    """A record of the schedule topic; properties that are None are omitted."""
    own = {**OWN, "REAL_TOPIC": topic, "REAL_QID": queue_id}
    return encode_record(
        topic=SCHEDULE_TOPIC,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties=encode_properties({name: text for name, text in own.items() if text}),
        **{"born_timestamp": 5, "store_timestamp": 6, **more},
    )


def run_of(*records):
    sizes = np.array([len(record) for record in records])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return RecordFields(pa.py_buffer(b"".join(records)), 0, starts, sizes)


def copies_of(*records, topics=TOPICS, file_bytes=4096, max_batches=100):
    return due_copies(run_of(*records), topics, file_bytes=file_bytes, max_batches=max_batches)


def decoded(copies):
    """The records of the copies, in append order."""
    for batch in copies.batches:
        batch.place(np.zeros(len(batch), np.int64), np.zeros(len(batch), np.int64), 99)
    return [
        decode_record(bytes(batch.data)[start:end])
        for batch in copies.batches
        for start, end in zip(batch.bounds[:-1], batch.bounds[1:], strict=True)
    ]


def test_copy_differs_only_in_offsets_and_store_time():
    host = (bytes(range(16)), 77)
    record = parked(flag=7, sys_flag=SYS_COMMIT, born_host=host, reconsume_times=3)
    before = decode_record(record)
    (after,) = decoded(copies_of(record))
    assert (after.topic, after.queue_id, after.store_timestamp) == ("t", 1, 99)
    names = ("body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host", "properties")
    for name in (*names, "reconsume_times"):
        assert getattr(after, name) == getattr(before, name), name


def test_order_is_kept_across_topics_and_queues():
    records = [parked(b"%d" % n, "ttu"[n % 3], str(n % 2)) for n in range(12)]
    copies = copies_of(*records)
    assert [record.body for record in decoded(copies)] == [b"%d" % n for n in range(12)]
    assert (copies.taken, copies.dropped) == (12, 0)
    assert [batch.topic for batch in copies.batches] == ["t", "u"] * 4


def test_messages_are_taken_until_they_fill_max_batches():
    records = [parked(b"%d" % n, "tu"[n % 2]) for n in range(6)]
    records.insert(2, parked(topic="gone"))
    copies = copies_of(*records, max_batches=3)
    assert [record.body for record in decoded(copies)] == [b"0", b"1", b"2"]
    assert (copies.taken, copies.dropped) == (4, 1)


@pytest.mark.parametrize(
    "place",
    [
        {"topic": "gone"},
        {"topic": None},
        {"queue_id": None},
        {"queue_id": "-1"},
        {"queue_id": "one"},
        {"queue_id": "9" * 30},
        {"topic": HALF_TOPIC},
        {"topic": SCHEDULE_TOPIC},
        {"topic": TIMER_TOPIC, "queue_id": "0"},
        {"topic": "\x03"},
    ],
)
def test_undeliverable_messages_are_dropped_and_logged(place, caplog):
    copies = copies_of(parked(b"1"), parked(b"lost", **place), parked(b"2"))
    assert [record.body for record in decoded(copies)] == [b"1", b"2"]
    assert (copies.taken, copies.dropped) == (3, 1)
    assert "1 delayed messages are dropped" in caplog.text


def test_all_messages_can_be_dropped():
    copies = copies_of(parked(topic=None), parked(topic="gone"))
    assert (copies.batches, copies.taken, copies.dropped) == ([], 2, 2)


def test_a_record_too_long_for_a_log_file_with_its_own_topic_is_dropped():
    name = "x" * 127
    room = 4096 - 8 - len(parked(b"", name, "0")) + len(SCHEDULE_TOPIC) - len(name)
    records = [parked(b"." * size, name, "0") for size in (room + 1, room)]
    copies = copies_of(*records)
    assert [len(record.body) for record in decoded(copies)] == [room]
    assert copies.dropped == 1


@pytest.mark.parametrize(
    ("wanted", "read", "write", "queue_id"),
    [("3", 4, 2, 3), ("3", 2, 4, 3), ("3", 2, 2, 1), ("4", 3, 3, 1), ("0", 1, 1, 0)],
)
def test_a_removed_queue_is_replaced_by_an_existing_queue(wanted, read, write, queue_id):
    topics = {"t": TopicConfig("t", read, write)}
    (after,) = decoded(copies_of(parked(queue_id=wanted), topics=topics))
    assert after.queue_id == queue_id
