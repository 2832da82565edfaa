"""Lookups by key and id find exactly the matching messages, indexed or not."""

import threading
from dataclasses import replace

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.errors import (
    InvalidInputError,
    MessageNotFoundError,
)
from pyrocket.formats.index_file import Geometry
from pyrocket.index.keys.key_index import KeyIndex
from support.keyed import limit_index
from support.stores import SMALL, batch, message, numbered, overwrite

HALF, DELAYED = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(params=["indexed", "tail"])
def some(open_store, request):
    """Opens a store with the given messages, which are in the key index or after its end."""

    def fill(messages):
        store = open_store()
        results = [store.append(one) for one in messages]
        if request.param == "indexed":
            store.close()
            store = open_store()
        return store, results

    return fill


def bodies(found):
    return [one.body for one in found]


def test_a_key_finds_its_messages_oldest_first(some):
    store, _ = some([message(b"%d" % at, keys=[f"k{at % 3}", "all"]) for at in range(30)])
    assert bodies(store.lookup.query("t", "k1")) == [b"%d" % at for at in range(1, 30, 3)]
    assert bodies(store.lookup.query("t", "all")) == [b"%d" % at for at in range(30)]
    assert (
        store.lookup.query("t", "k")
        == store.lookup.query("t", "k1 all")
        == store.lookup.query("t", "")
        == []
    )
    assert store.lookup.query("other", "k1") == []


def test_a_message_found_by_key_equals_the_message_read_by_offset(some):
    store, (sent,) = some([message(b"x", keys=["k"], tags="T", properties={"a": "b"})])
    (found,) = store.lookup.query("t", "k")
    assert [found] == store.read("t", 0, 0)
    assert found == store.lookup.by_id("t", sent.msg_id)
    assert found == store.lookup.by_id("t", sent.offset_msg_id)
    assert found == store.lookup.by_offset_id(sent.offset_msg_id)
    assert found == store.lookup.by_offset_id(sent.offset_msg_id.lower())


def test_only_the_newest_messages_of_a_key_are_returned_if_they_exceed_the_limit(some):
    store, _ = some([message(b"%d" % at, keys=["k"]) for at in range(100)])
    assert bodies(store.lookup.query("t", "k")) == [b"%d" % at for at in range(36, 100)]
    assert bodies(store.lookup.query("t", "k", max_messages=2)) == [b"98", b"99"]
    assert len(store.lookup.query("t", "k", max_messages=1000)) == 100
    with pytest.raises(InvalidInputError):
        store.lookup.query("t", "k", max_messages=0)


def test_other_keys_with_the_same_hash_are_not_returned_or_counted(some):
    keys = ["Aa", "BB"] * 20
    store, _ = some([message(key.encode(), keys=[key]) for key in keys])
    assert set(bodies(store.lookup.query("t", "Aa"))) == {b"Aa"}
    assert len(store.lookup.query("t", "Aa", max_messages=20)) == 20


def test_a_message_with_the_same_key_twice_is_found_once(some):
    store, _ = some([message(b"x", keys=["k", "k"])])
    assert bodies(store.lookup.query("t", "k")) == [b"x"]


def test_the_index_and_the_log_after_it_are_searched_together(open_store):
    """The first message is in the index; the others are found in the log after its end."""
    store = open_store()
    store.append(message(b"0", keys=["k"]))
    store.close()
    store = open_store()
    for at in range(1, 9):
        store.append(message(b"%d" % at, keys=["k"]))
        assert bodies(store.lookup.query("t", "k")) == [b"%d" % one for one in range(at + 1)]


def test_ids_without_a_message_are_not_found(some):
    store, sent = some([message(b"x" * 50, keys=["k"]) for _ in range(3)])
    host = sent[0].offset_msg_id[:16]
    inside = sent[1].physical_offset
    for offset in (0, 4095, inside - 1, inside + 1, inside + 84, 8191, 2**40, 2**63 - 1):
        with pytest.raises(MessageNotFoundError):
            store.lookup.by_offset_id(host + offset.to_bytes(8, "big").hex())
    with pytest.raises(MessageNotFoundError):
        store.lookup.by_offset_id(host + "F" * 16)
    other = "C0A8010500002A9F" + sent[0].offset_msg_id[16:]
    with pytest.raises(MessageNotFoundError):
        store.lookup.by_offset_id(other)
    with pytest.raises(MessageNotFoundError):
        store.lookup.by_id("other", sent[0].msg_id)
    with pytest.raises(MessageNotFoundError):
        store.lookup.by_id("other", sent[0].offset_msg_id)


def test_unpublished_messages_are_not_found(open_store, path):
    """The bytes after the end of the log are arbitrary."""
    store = open_store()
    sent = store.append(message(b"x", keys=["k"]))
    end = sent.physical_offset + store.read("t", 0, 0)[0].store_size
    file = path / "commitlog" / f"{4096:020d}"
    record = file.read_bytes()[sent.physical_offset - 4096 : end - 4096]
    ghost = record[:28] + end.to_bytes(8, "big") + record[36:]
    overwrite(file, ghost, end - 4096)
    assert len(store.lookup.query("t", "k")) == 1
    with pytest.raises(MessageNotFoundError):
        store.lookup.by_offset_id(sent.offset_msg_id[:16] + end.to_bytes(8, "big").hex())


def test_index_items_of_expired_messages_are_skipped(open_store, path):
    store = open_store()
    for number in range(60):
        store.append(message(numbered(1, 200, number)[0], keys=["k"]))
    store.close()
    files = sorted((path / "commitlog").iterdir())
    for file in files[:2]:
        file.unlink()
    reader = open_store(read_only=True)
    found = reader.lookup.query("t", "k", max_messages=100)
    assert 0 < len(found) < 60
    assert found[0].physical_offset >= int(files[2].name)


def test_queries_miss_no_message_while_a_writer_appends_and_indexes(open_store):
    """A query finds messages appended before it, whether or not they are indexed."""
    config = replace(SMALL, index_slots=3, index_items=2000)
    store = open_store(config=config)
    limit_index(store, catch_up_bytes=3000, slice_bytes=1)
    store.append(message(b"0", keys=["k"]))
    appended, stop, faults = [1], threading.Event(), []

    def ask():
        with Store.open(store.path, read_only=True) as reader:
            while not stop.is_set():
                before = appended[0]
                found = len(reader.lookup.query("t", "k", max_messages=10**6))
                if not before <= found <= appended[0] + 10:
                    faults.append((before, found, appended[0]))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(60):
        store.append_batch(batch(numbered(10, 20, number), 0, keys=[["k"]] * 10), topic="t")
        appended[0] += 10
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert KeyIndex(Layout(store.path), Geometry(3, 2000)).names(), "some messages were indexed"
