"""Every later release can read the files that the first version wrote."""

import hashlib
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Store
from pyrocket.formats.checkpoint import Checkpoint, decode_checkpoint
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.queue_entry import PRE_BLANK_SIZE, parse_entries
from pyrocket.formats.record import encode_record, read_header
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.values.message import MessageQueue
from support.slices import decode_run

V1 = Path(__file__).parent / "v1"
BASE, FIRST, TIME = 4096, 3, 1700000000000
IDS = [f"7F00000100011234567800000000000{number}" for number in range(6)]
LOCAL = "127.0.0.1:10911"

# body, properties, born time - TIME, store time - TIME, flag, sysFlag
ROWS = [
    (
        b"hello",
        {
            "UNIQ_KEY": IDS[0],
            "KEYS": "ORDER1 K2",
            "TAGS": "TagA",
            "__SHARDINGKEY": "N14228",
            "colour": "grün",
        },
        (0, 100, 7, 0),
    ),
    (b"", {}, (1, 101, 0, 0)),
    (b"a" * 5000, {"UNIQ_KEY": IDS[2], "TAGS": "Tag-10"}, (2, 102, 0, 0x301)),
    ("中文 🚀".encode(), {"TAGS": "中文"}, (3, 103, 0, 0x38)),
    (
        b"first of two",
        {"UNIQ_KEY": IDS[4], "TAGS": "TagB", "a": "1", "b": "x y"},
        (4, 104, 0, 0),
    ),
    (b"b" * 4096, {"UNIQ_KEY": IDS[5], "KEYS": "K3"}, (4, 104, -1, 0x301)),
]
STARTS, SIZES = [4096, 4299, 4396, 4576, 4720, 4891], [203, 97, 180, 144, 171, 175]
MSG_IDS = [
    IDS[0],
    "7F00000100002A9F00000000000010CB",
    IDS[2],
    "20010DB800000000000000000000000100002A9F00000000000011E0",
    IDS[4],
    IDS[5],
]
DIGESTS = {
    "commitlog.bin": "7e7d3aa5327836d58262eb1384dd83c7020d77509746f44f0009e736fed6978b",
    "consumequeue.bin": "d55e37848bf48ea84ea74aa8707f74eaf882d16e77d3f1b9f1e936a4f3d1d05d",
    "checkpoint.bin": "46c3afa7ade8b01837711eb34797cce54092d56acd1a6960dc820a664c2eee08",
}


def check_messages(messages):
    assert len(messages) == len(ROWS)
    for at, (message, (body, properties, numbers)) in enumerate(zip(messages, ROWS, strict=True)):
        assert (message.topic, message.queue_id, message.queue_offset) == ("Golden", 0, FIRST + at)
        assert (message.physical_offset, message.store_size) == (STARTS[at], SIZES[at])
        assert (message.body, dict(message.properties)) == (body, properties)
        times = message.born_timestamp - TIME, message.store_timestamp - TIME
        assert (*times, message.flag, message.sys_flag) == numbers
        assert message.msg_id == MSG_IDS[at]
    hosts = [(message.born_host, message.store_host) for message in messages]
    v6 = "[0:0:0:0:0:0:0:1]:54321", "[2001:db8:0:0:0:0:0:1]:10911"
    assert hosts == [v6 if at == 3 else (LOCAL, LOCAL) for at in range(6)]
    late = [(each.reconsume_times, each.prepared_transaction_offset) for each in messages]
    assert late == [(2, 4096) if at == 3 else (0, 0) for at in range(6)]


def log_records():
    data = (V1 / "commitlog.bin").read_bytes()
    return [
        data[start - BASE : start - BASE + size] for start, size in zip(STARTS, SIZES, strict=True)
    ]


@pytest.mark.parametrize("name", ["commitlog.bin", "consumequeue.bin", "checkpoint.bin"])
def test_the_files_are_unchanged(name):
    assert hashlib.sha256((V1 / name).read_bytes()).hexdigest() == DIGESTS[name]


def test_records_are_read_one_at_a_time():
    check_messages([decode_record(record).to_message() for record in log_records()])


def test_records_are_read_as_columns():
    buffer = pa.py_buffer((V1 / "commitlog.bin").read_bytes())
    raw = RecordFields(buffer, BASE, np.array(STARTS) - BASE, np.array(SIZES))
    columns = ["body", "msgId", "properties", "systemProperties", "tags", "keys", "flag"]
    queue = MessageQueue("Golden", "b", 0)
    rows = decode_run(raw, queue, FIRST, columns, verify_crc=True).to_pylist()
    assert [row["body"] for row in rows] == [body for body, *_ in ROWS]
    assert [row["msgId"] for row in rows] == MSG_IDS
    assert [dict(row["properties"] + row["systemProperties"]) for row in rows] == [
        properties for _, properties, _ in ROWS
    ]
    assert [row["tags"] for row in rows] == [row[1].get("TAGS") for row in ROWS]
    assert [row["keys"] for row in rows] == [row[1].get("KEYS", "").split() for row in ROWS]
    assert [row["flag"] for row in rows] == [row[2][2] for row in ROWS]


def test_the_same_records_are_still_written_with_the_same_bytes():
    for data in log_records():
        record = decode_record(data)
        given = {field.name: getattr(record, field.name) for field in fields(record)}
        for derived in ("size", "magic", "crc"):
            del given[derived]
        assert encode_record(**given) == data


def test_the_file_ends_with_a_blank_record():
    header = read_header((V1 / "commitlog.bin").read_bytes(), sum(SIZES))
    assert header.is_blank
    assert header.size == 4096 - sum(SIZES)


def test_the_queue_is_read():
    entries = parse_entries((V1 / "consumequeue.bin").read_bytes())
    tags = [java_hash(properties.get("TAGS", "")) for _, properties, _ in ROWS]
    assert entries.tolist() == [
        *[(0, PRE_BLANK_SIZE, 0)] * FIRST,
        *zip(STARTS, SIZES, tags, strict=True),
        (0, 0, 0),
    ]


def test_the_checkpoint_is_read():
    data = (V1 / "checkpoint.bin").read_bytes()
    assert decode_checkpoint(data) == Checkpoint(TIME + 104, TIME + 104, 0)


TOPICS = '{"topicConfigTable":{"Golden":{"perm":6,"readQueueNums":1,"writeQueueNums":1}}}'


@pytest.fixture
def directory(tmp_path):
    """A store that contains these files."""
    places = {
        "commitlog.bin": "commitlog/00000000000000004096",
        "consumequeue.bin": "consumequeue/Golden/0/00000000000000000000",
        "checkpoint.bin": "checkpoint",
        "store.json": "pyrocket/store.json",
    }
    for name, place in places.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(V1 / name, tmp_path / place)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(TOPICS)
    return tmp_path


def test_a_store_of_these_files_is_read(directory):
    with Store.open(directory, read_only=True) as store:
        assert store.uuid == "6f1c1a52-6a51-4f0e-9f06-5f7f0d9be1c4"
        assert store.broker_name == "broker-gold"
        assert (store.min_offset("Golden", 0), store.max_offset("Golden", 0)) == (3, 9)
        check_messages(store.read("Golden", 0, 3))


def test_a_store_of_these_files_is_continued(directory):
    with Store.open(directory) as store:
        batch = pa.RecordBatch.from_pydict({"body": [b"next"] * 3})
        store.append_batch(batch, topic="Golden")
    with Store.open(directory, read_only=True) as store:
        assert (store.min_offset("Golden", 0), store.max_offset("Golden", 0)) == (3, 12)
        check_messages(store.read("Golden", 0, 3, 6))
        added = store.read("Golden", 0, 9)
    assert [message.body for message in added] == [b"next"] * 3
    # A blank record at the end of the log is overwritten, as in RocketMQ.
    assert added[0].physical_offset == BASE + sum(SIZES)
