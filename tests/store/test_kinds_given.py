"""The error for an argument of wrong type names the argument and its type; nothing is written."""

import numpy as np
import pyarrow as pa
import pytest
from pyrocket import Message, Store
from pyrocket.errors import (
    InvalidInputError,
    MessageError,
    SchemaError,
    StoreNotFoundError,
    TopicNameError,
)
from support.stores import filled

FIELDS = [
    ({"keys": [3]}, "one of the keys is 3, of type int"),
    ({"keys": [None]}, "one of the keys is None"),
    ({"keys": [b"a"]}, "one of the keys is b'a', of type bytes"),
    ({"keys": None}, "keys is None"),
    ({"keys": b"a"}, "keys is b'a'"),
    ({"keys": iter("ab")}, "keys is <"),
    ({"tags": 3}, "tags is 3, of type int"),
    ({"tags": b"a"}, "tags is b'a'"),
    ({"sharding_key": 5}, "sharding_key is 5"),
    ({"properties": {"a": 3}}, "property 'a' is 3, of type int"),
    ({"properties": {"a": b"x"}}, "property 'a' is b'x'"),
    ({"properties": {3: "a"}}, "the name of a property is 3"),
    ({"properties": None}, "properties is None"),
    ({"properties": [("a", "b")]}, r"properties is \[\('a', 'b'\)\], of type list"),
    ({"queue_id": "1"}, "queue_id is '1', of type str"),
    ({"queue_id": True}, "queue_id is True, of type bool"),
    ({"queue_id": 0.0}, "queue_id is 0.0"),
    ({"flag": "1"}, "flag is '1'"),
    ({"flag": 1.0}, "flag is 1.0"),
]


@pytest.fixture
def store(path):
    with filled(path, count=3) as opened:
        yield opened


@pytest.mark.parametrize(("fields", "expected"), FIELDS, ids=[expected for _, expected in FIELDS])
def test_a_message_with_a_field_of_wrong_type_is_rejected(store, fields, expected):
    message = Message(**{"topic": "t", "body": b"x", **fields})
    with pytest.raises(MessageError, match=expected) as caught:
        store.append(message)
    assert caught.value.remedy.startswith("Use ")
    assert store.max_offset("t", 0) == 3


@pytest.mark.parametrize("fields", [{"queue_id": "1"}, {"sharding_key": 5}, {"keys": None}])
def test_a_half_message_with_a_field_of_wrong_type_is_rejected(store, fields):
    with pytest.raises(MessageError, match=next(iter(fields))):
        store.transactions.send_half("g", Message(topic="t", body=b"x", **fields))


def test_a_value_that_is_not_a_message_is_rejected(store):
    with pytest.raises(MessageError, match=r"of type bytes.*pyrocket\.Message"):
        store.append(b"x")
    for topic in (None, 5, ["t"]):
        with pytest.raises(TopicNameError, match="not a legal topic name"):
            store.append(Message(topic=topic, body=b"x"))


def test_numpy_integers_are_accepted_as_numbers(store):
    store.append(Message(topic="t", body=b"x", queue_id=np.int32(0), flag=np.int64(7)))
    assert [each.flag for each in store.read("t", np.int32(0), np.int64(3))] == [7]


def test_an_arrow_table_is_rejected_with_a_remedy(store):
    table = pa.table({"body": pa.array([b"a", b"b"], pa.binary())})
    with pytest.raises(SchemaError, match=r"to_batches\(\)") as caught:
        store.append_batch(table, topic="t")
    assert "Table" in caught.value.message
    with pytest.raises(InvalidInputError, match="first_queue is '0'"):
        store.append_batch(table.to_batches()[0], topic="t", first_queue="0")
    for each in table.combine_chunks().to_batches():
        assert store.append_batch(each, topic="t").rows == 2


READS = {
    "queue_id is '0'": lambda store: store.read("t", "0", 0),
    "offset is 0.0": lambda store: store.read("t", 0, 0.0),
    "max_messages is '5'": lambda store: store.read("t", 0, 0, "5"),
    "end is None": lambda store: store.scan("t", 0, 0, None),
    "queue_id is None": lambda store: store.max_offset("t", None),
    "queue_id is True": lambda store: store.min_offset("t", True),
    "timestamp_ms is 1.5": lambda store: store.offset_by_time("t", 0, 1.5),
    "key is 5": lambda store: store.lookup.query("t", 5),
    "topic is 5": lambda store: store.lookup.query(5, "k"),
    "begin_ms is '0'": lambda store: store.lookup.query("t", "k", begin_ms="0"),
    "msg_id is 7": lambda store: store.lookup.by_id("t", 7),
    "offset_msg_id is None": lambda store: store.lookup.by_offset_id(None),
    r"topic is \['t'\]": lambda store: store.offsets(["t"]),
    "'sched' is not a kind of pending messages.*scheduled": lambda store: store.views.pending(
        "sched"
    ),
    "a queue id is '0'": lambda store: store.groups.commit("g", "t", {"0": 1}),
    "the offset of queue 0 is 1.5": lambda store: store.groups.commit("g", "t", {0: 1.5}),
    "the offsets are 3": lambda store: store.groups.commit("g", "t", 3),
}


@pytest.mark.parametrize("expected", READS)
def test_a_number_or_string_of_wrong_type_is_rejected(store, expected):
    with pytest.raises(InvalidInputError, match=expected) as caught:
        READS[expected](store)
    assert caught.value.remedy.startswith("Use ")
    assert not store.groups.committed("g", "t")


@pytest.mark.parametrize("perm", [8, 77, -1, True, "6"])
def test_a_permission_that_rocketmq_does_not_have_is_rejected(store, perm):
    for change in (store.topics.create, store.topics.update):
        with pytest.raises(InvalidInputError, match=r"TOPIC_PERMISSION.*their sum"):
            change("t", perm=perm)
    assert store.topics.create("inherited", perm=7).perm == 7


@pytest.mark.parametrize("path", ["", None, 5, b"x"])
def test_open_requires_a_path(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreNotFoundError, match="STORE_PATH") as caught:
        Store.open(path, create=True)
    assert "Name its directory" in caught.value.remedy
    assert not list(tmp_path.iterdir())
