"""A store of RocketMQ's broker 5.5.0: pyrocket reads the messages that RocketMQ's client pulled."""

import json
import shutil

import pytest
from golden.java import GOLDEN, listing, queue_files
from interop.compare import assert_same, of_java, of_ours
from pyrocket import Message, Store, StoreConfig

NAME = "java550-clean"
PULLED = {
    (found["topic"], found["queue"]): found
    for found in json.loads((GOLDEN / f"{NAME}.json").read_text())
}
MESSAGES = [of_java(one) for found in PULLED.values() for one in found["messages"]]


@pytest.fixture
def root(tmp_path):
    return shutil.copytree(GOLDEN / NAME, tmp_path / NAME)


def test_every_message_equals_that_of_rocketmqs_client_and_reading_changes_nothing(root):
    before = listing(root)
    assert_same(root, PULLED)
    assert listing(root) == before
    kinds = {message["sys_flag"] for message in MESSAGES}
    assert kinds == {0, 0x8, 0x100, 0x200, 0x300}, "plain, committed, LZ4, Zstandard, zlib"


def test_every_key_and_every_id_is_found_in_rocketmqs_index(root):
    expected = {}
    for message in MESSAGES:
        own = message["properties"]
        names = [*own.get("KEYS", "").split(), *filter(None, [own.get("UNIQ_KEY")])]
        for name in dict.fromkeys(names):
            expected.setdefault((message["topic"], name), []).append(message)
    assert len(expected) > 80
    before = listing(root)
    with Store.open(root, read_only=True) as store:
        for (topic, key), messages in expected.items():
            messages.sort(key=lambda message: message["physical_offset"])
            assert [of_ours(found) for found in store.lookup.query(topic, key)] == messages
    assert listing(root) == before


def test_the_progress_of_groups_is_read(root):
    with Store.open(root, read_only=True) as store:
        assert store.groups.committed("workers", "work") == {0: 2}
        assert store.groups.committed("workers", "%RETRY%workers") == {0: 1}


@pytest.mark.parametrize("damage", ["nothing", "checkpoint", "queues"])
def test_queues_rebuilt_from_the_log_equal_those_of_rocketmq(root, damage):
    (root / "abort").write_text("4711")
    if damage == "checkpoint":
        (root / "checkpoint").unlink()
    elif damage == "queues":
        shutil.rmtree(root / "consumequeue")
    config = StoreConfig(queue_file_entries=10, index_slots=100, index_items=400)
    Store.open(root, config=config).close()
    assert_same(root, PULLED)
    assert queue_files(root) == queue_files(GOLDEN / NAME)


def test_the_log_continues_after_rocketmqs_last_message(root):
    with Store.open(root) as store:
        for number in range(60):
            store.append(Message(topic="TopicTest", body=b"%d" % number, queue_id=number % 2))
    with Store.open(root, read_only=True) as store:
        for queue_id in (0, 1):
            count = len(PULLED["TopicTest", queue_id]["messages"])
            added = [m.body for m in store.read("TopicTest", queue_id, count, 100)]
            assert added == [b"%d" % number for number in range(queue_id, 60, 2)]
        assert [m.body for m in store.lookup.query("TopicTest", "ORDER3")] == [b"hello3"]
