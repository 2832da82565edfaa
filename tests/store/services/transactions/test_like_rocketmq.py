"""After commit, check and discard, each record equals the record that RocketMQ 4.9.8 wrote."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.properties import decode_properties
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch
from support.halves import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Held,
    Listener,
    discarded,
    halves,
    log_records,
    producer,
)
from support.inner import inner

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
CHECKED = GOLDEN / "java498-txcheck"
ROUNDS = [1795225875575, 1795225876187, 1795225876791]
"""The times of RocketMQ's rounds; RocketMQ was configured to run a round every 600 ms."""

POLICY = {"interval_ms": 600, "timeout_ms": 6000}
BIG = StoreConfig(log_file_bytes=65536, queue_file_entries=1000, index_slots=100, index_items=400)
FIELDS = (
    *("topic", "queue_id", "queue_offset", "sys_flag", "flag", "body", "crc", "reconsume_times"),
    *("born_timestamp", "born_host", "store_host", "prepared_transaction_offset"),
)


def shown(record, without=()):
    """The fields to compare, which exclude offsets, store times and the order of properties."""
    properties = decode_properties(record.properties)
    fields = {name: getattr(record, name) for name in FIELDS if name not in without}
    return fields | {"properties": properties}


def queue_entries(path):
    """The entries of each queue, as the index of the record in the log and the tags code."""
    numbers = {record.physical_offset: at for at, record in enumerate(log_records(path))}
    found = {}
    for file in sorted((path / "consumequeue").glob("*/*/*")):
        entries = np.fromfile(file, [("place", ">i8"), ("size", ">i4"), ("code", ">i8")])
        entries = entries[entries["size"] > 0]
        places, codes = entries["place"].tolist(), entries["code"].tolist()
        key = file.relative_to(path / "consumequeue").parent.as_posix()
        found.setdefault(key, []).extend(
            (numbers[place], code) for place, code in zip(places, codes, strict=True)
        )
    return found


def append_again(store, record):
    """Append a copy of a record from another log."""
    data = encode_record(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=0,
        physical_offset=0,
        body=record.body,
        properties=record.properties,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        store_timestamp=0,
    )
    tags = decode_properties(record.properties)["TAGS"]
    batch = EncodedBatch(
        topic=record.topic,
        data=pa.py_buffer(bytearray(data)),
        bounds=np.array([0, len(data)]),
        queue_ids=np.zeros(1, np.int32),
        tags_codes=np.array([java_hash(tags)], np.int64),
    )
    with inner(store).writer.exclusive():
        inner(store).writer.append([batch])


def test_three_rounds_of_checks_write_rocketmqs_records(path, clock):
    theirs = log_records(CHECKED)
    with Store.open(path, create=True, config=BIG, clock=clock) as store:
        clock.now = ROUNDS[0] - POLICY["interval_ms"]
        for record in theirs[:3]:
            append_again(store, record)
        clock.now = ROUNDS[0]
        asked = []
        with producer(Held(store, **POLICY), "pg", Listener(UNKNOWN)) as one:
            for now in ROUNDS:
                clock.now = now
                asked.append(one.check_now())
        assert asked == [1, 1, 1]
    ours = log_records(path)
    assert len(ours) == len(theirs) == 10
    for mine, his in zip(ours, theirs, strict=True):
        assert shown(mine) == shown(his)
    assert queue_entries(path) == queue_entries(CHECKED)


def test_a_commit_writes_rocketmqs_records(path, clock):
    theirs = [one for one in log_records(GOLDEN / "java498-clean") if is_of_the_transaction(one)]
    clock.now = theirs[0].born_timestamp
    sent = Message(topic="TopicTest", body=b"half", tags="TagC", keys=["HK"], queue_id=0)
    with (
        Store.open(path, create=True, config=BIG, clock=clock) as store,
        producer(Held(store), "pg", Listener(COMMIT)) as one,
    ):
        one.send(sent)
    ours = log_records(path)
    assert len(ours) == len(theirs) == 3
    assert ours[1].prepared_transaction_offset == ours[0].physical_offset
    places = ("queue_offset", "born_timestamp", "prepared_transaction_offset")
    for mine, his in zip(ours, theirs, strict=True):
        hosts = ("born_host", "store_host")
        one, other = (shown(each, (*places, *hosts)) for each in (mine, his))
        for each in (one, other):
            each["properties"].pop("UNIQ_KEY", None)
        assert one == other


def test_a_rollback_writes_rocketmqs_records(path, clock):
    """A rollback writes the same op message as a commit, and no other record."""
    _, _, his_op = [
        one for one in log_records(GOLDEN / "java498-clean") if is_of_the_transaction(one)
    ]
    with (
        Store.open(path, create=True, config=BIG, clock=clock) as store,
        producer(Held(store), "pg", Listener(ROLLBACK)) as one,
    ):
        one.send(Message(topic="TopicTest", body=b"half", tags="TagC", queue_id=0))
    _, op = log_records(path)
    hosts = ("born_host", "store_host", "born_timestamp", "queue_offset")
    assert shown(op, hosts) == shown(his_op, hosts)


def is_of_the_transaction(record):
    return "TRANS" in record.topic or record.prepared_transaction_offset


@pytest.fixture
def continued(path, clock):
    """A store that RocketMQ wrote, without saved cursors."""
    shutil.copytree(CHECKED, path)
    clock.now = ROUNDS[-1] + 600_000
    with Store.open(path, clock=clock) as store:
        store.topics.create("TopicTest")
        yield store


def test_checks_started_by_a_broker_continue(continued, clock):
    held = Held(continued)
    pending = held.transactions.pending()
    assert [(half.queue_offset, half.checks) for half in pending] == [(7, 3), (8, 3)]
    listener = Listener(UNKNOWN, COMMIT)
    with producer(held, "pg", listener) as one:
        assert one.check_now() == 2
    assert [seen.body for seen in listener.checked] == [b"imm", b"plain"]
    assert len(discarded(continued)) == 1, "discarded messages are not discarded again"
    assert len(halves(continued)) == 11
    assert held.transactions.pending() == []


def test_undecided_messages_of_a_broker_store_are_listed_by_a_reader(path):
    shutil.copytree(CHECKED, path)
    with Store.open(path, read_only=True) as store:
        pending = Held(store).transactions.pending()
    assert [half.queue_offset for half in pending] == [7, 8]
