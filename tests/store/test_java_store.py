"""Stores of a RocketMQ 4.9.8 broker are read completely, which changes no file."""

import shutil

import pytest
from golden.java import CLEAN, GOLDEN, LOG_END, TXCHECK, check_test_topic, listing, log_bytes
from pyrocket import SCAN_COLUMNS, Store
from pyrocket.errors import TopicNotFoundError
from pyrocket.formats.checkpoint import decode_checkpoint
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.queue_entry import parse_entries
from pyrocket.formats.record_decode import decode_record


@pytest.fixture
def clean(tmp_path):
    return shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)


@pytest.fixture
def txcheck(tmp_path):
    return shutil.copytree(GOLDEN / TXCHECK, tmp_path / TXCHECK)


def test_reading_a_store_of_a_broker_changes_no_file(clean, txcheck):
    for root in (clean, txcheck):
        before = listing(root)
        with Store.open(root, read_only=True) as store:
            assert store.read_only
            assert store.uuid == ""
            for topic in store.topics.all():
                for queue_id, known in store.offsets(topic).items():
                    store.read(topic, queue_id, known.minimum, 100)
                    columns = list(SCAN_COLUMNS)
                    list(store.scan(topic, queue_id, known.minimum, known.maximum, columns))
            store.offset_by_time("SCHEDULE_TOPIC_XXXX", 0, 0)
            store.position()
        assert listing(root) == before


def test_every_message_of_the_topic_is_read(clean):
    with Store.open(clean, read_only=True) as store:
        ranges = {q: (o.minimum, o.maximum) for q, o in store.offsets("TopicTest").items()}
        assert ranges == {0: (0, 14), 1: (0, 13), 2: (0, 0), 3: (0, 0)}
        check_test_topic(store)


def test_the_topics_equal_the_topic_table_of_the_broker(clean, txcheck):
    with Store.open(clean, read_only=True) as store:
        counts = {
            name: (t.read_queues, t.write_queues, t.perm) for name, t in store.topics.all().items()
        }
        assert counts == {
            "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
            "TopicTest": (4, 4, 6),
            "SELF_TEST_TOPIC": (1, 1, 6),
            "DefaultCluster": (16, 16, 7),
            "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
            "broker-a": (1, 1, 7),
            "TBW102": (8, 8, 7),
            "BenchmarkTest": (1024, 1024, 6),
            "OFFSET_MOVED_EVENT": (1, 1, 6),
        }
        with pytest.raises(TopicNotFoundError, match="TopicTest"):
            store.topics.get("TopicTests")
    with Store.open(txcheck, read_only=True) as store:
        assert "RMQ_SYS_TRANS_HALF_TOPIC" in store.topics.all()


CHAIN = [
    (4444, 208, "SCHEDULE_TOPIC_XXXX", 0, 0, 0, 0, {"REAL_TOPIC", "DELAY", "TAGS", "REAL_QID"}),
    (
        4652,
        234,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        *(0, 0, 0, 0),
        {"REAL_TOPIC", "KEYS", "TRAN_MSG", "PGROUP", "TAGS", "REAL_QID"},
    ),
    (
        4886,
        219,
        "TopicTest",
        *(0, 13, 8, 4652),
        {"REAL_TOPIC", "KEYS", "TRAN_MSG", "PGROUP", "TAGS", "REAL_QID"},
    ),
    (5105, 135, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0, 0, 0, {"WAIT", "TAGS"}),
    (5240, 198, "TopicTest", 1, 12, 0, 0, {"REAL_TOPIC", "DELAY", "TAGS", "REAL_QID"}),
]


def test_delayed_and_transactional_records_of_the_broker_are_decoded():
    log = log_bytes(GOLDEN / CLEAN)
    for position, size, topic, queue_id, queue_offset, sys_flag, prepared, names in CHAIN:
        record = decode_record(log[position:])
        assert (record.physical_offset, record.size, record.topic) == (position, size, topic)
        assert (record.queue_id, record.queue_offset) == (queue_id, queue_offset)
        assert (record.sys_flag, record.prepared_transaction_offset) == (sys_flag, prepared)
        assert set(record.to_message().properties) - {"UNIQ_KEY"} == names
    assert decode_record(log[5105:]).body == b"0"
    assert not any(log[LOG_END:])


def test_queue_entries_contain_the_tags_hash_or_the_delivery_time():
    root = GOLDEN / CLEAN / "consumequeue"
    parked = decode_record(log_bytes(GOLDEN / CLEAN)[4444:])
    (entry,) = parse_entries((root / "SCHEDULE_TOPIC_XXXX/0" / f"{0:020d}").read_bytes())[:1]
    assert entry.tolist() == (4444, 208, parked.store_timestamp + 1000)
    entries = parse_entries((root / "TopicTest/0" / f"{200:020d}").read_bytes())
    tags = [java_hash(tag) for tag in ("TagA", "TagA", "TagA", "TagC")]
    assert entries["tags_code"].tolist() == tags + [0] * 6


def test_the_checkpoint_is_read():
    checkpoint = decode_checkpoint((GOLDEN / CLEAN / "checkpoint").read_bytes())
    log = log_bytes(GOLDEN / CLEAN)
    assert checkpoint.log_timestamp == decode_record(log[4886:]).store_timestamp
    assert checkpoint.queue_timestamp == decode_record(log[5240:]).store_timestamp
    assert checkpoint.safe_timestamp == checkpoint.log_timestamp - 3000


def test_messages_of_a_store_with_transaction_checks_are_read(txcheck):
    with Store.open(txcheck, read_only=True) as store:
        half = store.read("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 100)
        assert [m.body for m in half] == [b"imm", b"plain", b"max"] + [b"imm", b"plain"] * 3
        checks = [m.properties.get("TRANSACTION_CHECK_TIMES") for m in half]
        assert checks == [None, None, "15", "1", "1", "2", "2", "3", "3"]
        (discarded,) = store.read("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0, 100)
        assert (discarded.body, discarded.physical_offset) == (b"max", 1358)
