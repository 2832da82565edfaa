"""Sending of one message and of batches: queue selection, limits, flushing."""

import os
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from pyrocket import Message
from pyrocket.disk import io
from pyrocket.errors import MessageError, TopicNotFoundError
from pyrocket.formats.hashes import queue_for_key
from support.inner import inner
from support.stores import SMALL, batch, bodies, message, numbered

PROPERTIES = pa.map_(pa.string(), pa.string())
BIG = replace(SMALL, log_file_bytes=16 * 1024 * 1024)
PLACE = ("queue_offset", "physical_offset", "msg_id")
CASES = [
    {"body": b"plain"},
    {"body": b""},
    {"body": b"a" * 4095},
    {"body": b"a" * 4096},
    {"body": bytes(range(256)) * 40, "tags": "TagA"},
    {"body": b"k", "keys": ["a", "ü"]},
    {"body": b"p", "properties": {"color": "red", "größe": "5"}},
    {"body": b"s", "sharding_key": "customer-7"},
    {"body": b"f", "flag": -7, "tags": "T", "keys": ["k"], "properties": {"a": "b"}},
]


def as_batch(case, queue_id):
    columns = {"body": pa.array([case["body"]], pa.binary())}
    columns["queueId"] = pa.array([queue_id], pa.int32())
    for name, given in (("tags", "tags"), ("shardingKey", "sharding_key")):
        columns[name] = pa.array([case.get(given)], pa.string())
    columns["keys"] = pa.array([case.get("keys")], pa.list_(pa.string()))
    columns["properties"] = pa.array([list(case.get("properties", {}).items())], PROPERTIES)
    columns["flag"] = pa.array([case.get("flag", 0)], pa.int32())
    return pa.record_batch(columns)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_message_has_the_same_record_whether_sent_alone_or_in_a_batch(open_store, case):
    store = open_store(config=BIG)
    store.append(Message(topic="t", queue_id=0, **case))
    store.append_batch(as_batch(case, 0), topic="t")
    one, other = (vars(stored) for stored in store.read("t", 0, 0))
    unique = [dict(one.pop("properties")), dict(other.pop("properties"))]
    assert [len(properties.pop("UNIQ_KEY")) for properties in unique] == [32, 32]
    assert unique[0] == unique[1]
    assert {k: v for k, v in one.items() if k not in PLACE} == {
        k: v for k, v in other.items() if k not in PLACE
    }
    assert one["body"] == case["body"]


def test_a_result_has_the_location_of_the_message(store):
    for n in range(3):
        result = store.append(message(b"%d" % n, queue_id=1))
        (stored,) = store.read("t", 1, result.queue_offset)
        assert stored.body == b"%d" % n
        assert stored.physical_offset == result.physical_offset
        assert stored.msg_id == result.msg_id
        assert result.offset_msg_id == f"7F00000100002A9F{result.physical_offset:016X}"


def test_batch_result_counts_rows_and_bytes(store):
    result = store.append_batch(batch(numbered(20), 0), topic="t")
    assert result.rows == 20
    stored = store.read("t", 0, 0, 20)
    assert result.bytes == sum(one.store_size for one in stored)
    assert result.log_end == stored[-1].physical_offset + stored[-1].store_size


def test_a_batch_without_rows_appends_nothing(store):
    end = store.append_batch(batch(numbered(3), 0), topic="t").log_end
    result = store.append_batch(batch([], []), topic="t")
    assert (result.rows, result.bytes, result.log_end) == (0, 0, end)


def test_a_slice_of_a_batch_appends_only_its_rows(store):
    whole = batch(numbered(10), 0, tags=[str(n) for n in range(10)])
    store.append_batch(whole.slice(3, 4), topic="t")
    assert bodies(store)[0] == numbered(4, first=3)
    assert [one.tags for one in store.read("t", 0, 0)] == ["3", "4", "5", "6"]


def test_a_topic_column_splits_a_batch_and_an_argument_overrides_it(store):
    rows = batch([b"0", b"1", b"2"], 0, topic=["a", "b", "a"])
    store.append_batch(rows)
    assert (bodies(store, "a")[0], bodies(store, "b")[0]) == ([b"0", b"2"], [b"1"])
    store.append_batch(rows, topic="c")
    assert bodies(store, "c")[0] == [b"0", b"1", b"2"]


def test_messages_with_the_same_sharding_key_are_in_one_queue_in_order(store):
    keys = [f"key-{n % 7}" for n in range(70)]
    rows = [f"{key}:{n}".encode() for n, key in enumerate(keys)]
    store.append_batch(batch(rows[:35], shardingKey=keys[:35]), topic="t")
    for key, row in zip(keys[35:], rows[35:], strict=True):
        store.append(Message(topic="t", body=row, sharding_key=key))
    found = bodies(store)
    for key in set(keys):
        homes = {q for q, queue in found.items() if any(b.startswith(key.encode()) for b in queue)}
        assert homes == {queue_for_key(key, 4)}
        (home,) = homes
        mine = [int(b.split(b":")[1]) for b in found[home] if b.startswith(f"{key}:".encode())]
        assert mine == sorted(mine)
        assert len(mine) == 10


def test_queue_id_overrides_sharding_key_and_rows_with_neither_are_spread(store):
    columns = {"shardingKey": ["ORDER1", "ORDER1", None], "queueId": pa.array([3, None, 2])}
    store.append_batch(batch([b"a", b"b", b"c"], **columns), topic="t")
    assert queue_for_key("ORDER1", 4) == 1
    assert bodies(store) == {0: [], 1: [b"b"], 2: [b"c"], 3: [b"a"]}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 97, 100])
def test_rows_without_a_queue_are_spread_evenly(store, count):
    store.append_batch(batch(numbered(count)), topic="t", first_queue=2)
    counts = [len(queue) for queue in bodies(store).values()]
    assert max(counts) - min(counts) <= 1
    for _ in range(8):
        store.append(message(queue_id=None))
    after = [len(queue) for queue in bodies(store).values()]
    assert [b - a for a, b in zip(counts, after, strict=True)] == [2, 2, 2, 2]


def test_batches_without_a_first_queue_start_at_a_random_queue(store):
    for _ in range(60):
        store.append_batch(batch([b"x"]), topic="t")
    assert Counter(len(queue) > 3 for queue in bodies(store).values()) == {True: 4}


def test_unique_ids_never_repeat(store):
    store.append_batch(batch(numbered(500), 0), topic="t")
    ids = [one.msg_id for one in store.read("t", 0, 0, 500)]
    ids += [store.append(message()).msg_id for _ in range(50)]
    assert len(set(ids)) == 550


REFUSED = [
    ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "BODY_TOO_LARGE"),
    ({"properties": {"a": "v" * 32767}}, "PROPERTIES_SIZE_EXCEEDED"),
    ({"properties": {"TAGS": "x"}}, "MESSAGE_ILLEGAL"),
    ({"properties": {"a": ""}}, "MESSAGE_ILLEGAL"),
    ({"properties": {"": "a"}}, "MESSAGE_ILLEGAL"),
    ({"properties": {"a\x01": "a"}}, "MESSAGE_ILLEGAL"),
    ({"tags": "a\x02b"}, "MESSAGE_ILLEGAL"),
    ({"tags": "\ud800"}, "MESSAGE_ILLEGAL"),
    ({"sharding_key": "\ud800", "queue_id": None}, "MESSAGE_ILLEGAL"),
    ({"keys": ["a b"]}, "MESSAGE_ILLEGAL"),
    ({"keys": "a b"}, "MESSAGE_ILLEGAL"),
    ({"flag": 2**31}, "MESSAGE_ILLEGAL"),
    ({"queue_id": 4}, "QUEUE_NOT_FOUND"),
    ({"queue_id": -1}, "QUEUE_NOT_FOUND"),
]


@pytest.mark.parametrize(("wrong", "code"), REFUSED, ids=[f"{n}" for n in range(len(REFUSED))])
def test_an_illegal_message_is_rejected_and_nothing_is_written(store, wrong, code):
    store.topics.create("t")
    before = store.position()
    with pytest.raises(MessageError) as caught:
        store.append(message(**wrong))
    assert caught.value.code == code
    assert store.position() == before


def test_a_plain_string_as_keys_is_one_key(store):
    store.append(message(keys="order"))
    assert store.read("t", 0, 0)[0].keys == ("order",)


@pytest.mark.parametrize("keys", [[""], ("a", ""), ["", "a"]])
def test_an_empty_key_is_rejected_as_in_a_batch(store, keys):
    before = store.position().published
    with pytest.raises(MessageError, match="empty string among its keys"):
        store.append(message(keys=keys))
    with pytest.raises(MessageError, match="row 0 has an empty string among its keys"):
        store.append_batch(as_batch({"body": b"b", "keys": keys}, 0), topic="t")
    assert store.position().published == before


@pytest.mark.parametrize(
    ("columns", "code", "row"),
    [
        ({"tags": ["a", "b", "c" * 40_000, "d"]}, "PROPERTIES_SIZE_EXCEEDED", 2),
        ({"tags": ["a", "b", "c", "\x01"]}, "MESSAGE_ILLEGAL", 3),
        ({"topic": ["t", "u", "t" * 9, None]}, "TOPIC_MISSING", 3),
    ],
)
def test_the_error_for_a_row_has_its_number_however_its_queue_is_selected(
    open_store, columns, code, row
):
    store = open_store(config=BIG)
    rows = batch([b""] * 4, [1, 0, 1, 0], **columns)
    with pytest.raises(MessageError, match=rf"row {row} ") as caught:
        store.append_batch(rows, topic=None if "topic" in columns else "t")
    assert caught.value.code == code


def test_errors_have_the_row_number_in_a_batch_of_several_topics(open_store):
    store = open_store(config=BIG)
    rows = batch([b""] * 5, 0, topic=[*"ababb"], tags=[*"xxxx", "y" * 40_000])
    with pytest.raises(MessageError, match="row 4 "):
        store.append_batch(rows)
    assert bodies(store, "a")[0] == bodies(store, "b")[0] == []


@pytest.mark.parametrize(
    ("body", "code"), [(None, "BODY_NULL"), (b"x" * (4 * 1024 * 1024 + 1), "BODY_TOO_LARGE")]
)
def test_one_invalid_body_rejects_the_whole_batch(open_store, body, code):
    store = open_store(config=BIG)
    store.append(message())
    before = store.position()
    with pytest.raises(MessageError, match="row 7 ") as caught:
        store.append_batch(batch([*numbered(7), body, *numbered(7)], 0), topic="t")
    assert caught.value.code == code
    assert store.position() == before


@pytest.mark.parametrize("flush", ["sync", "manual"])
def test_sync_appends_are_durable_and_manual_appends_are_not_flushed(
    open_store, monkeypatch, flush
):
    store = open_store(config=replace(SMALL, flush=flush))
    store.append(message())
    synced = []
    real = io.sync

    def record(descriptor):
        if "commitlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            synced.append(1)
        real(descriptor)

    monkeypatch.setattr(io, "sync", record)
    store.append(message())
    store.append_batch(batch([b"x"]), topic="t")
    assert len(synced) == (2 if flush == "sync" else 0)
    store.flush()
    assert len(synced) == (2 if flush == "sync" else 1)
    store.flush()
    assert len(synced) == (2 if flush == "sync" else 1), "nothing new, nothing to do"


def test_a_topic_deleted_during_an_append_is_detected(store, monkeypatch):
    store.topics.create("t", read_queues=2, write_queues=2)
    outgoing = inner(store).encoder
    encode = outgoing.encode_message

    def encode_then_shrink(*arguments):
        made = encode(*arguments)
        store.topics.update("t", write_queues=1)
        return made

    monkeypatch.setattr(outgoing, "encode_message", encode_then_shrink)
    with pytest.raises(TopicNotFoundError) as caught:
        store.append(message(queue_id=1))
    assert caught.value.code == "TOPIC_CHANGED"
    assert bodies(store) == {0: [], 1: []}
