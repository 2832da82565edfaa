"""Arguments of wrong type or out of range are rejected with a specific code."""

import pyarrow as pa
import pytest
from pyrocket import Message
from pyrocket.errors import (
    GroupNameError,
    InvalidInputError,
    MessageError,
    SchemaError,
)
from support.stores import message


@pytest.fixture
def topic(store):
    store.topics.create("t", read_queues=1, write_queues=1)
    store.append(message())
    return store


def refused(code, kind, call):
    with pytest.raises(kind) as failure:
        call()
    assert failure.value.code == code
    assert failure.value.remedy
    return str(failure.value)


@pytest.mark.parametrize("count", [0, -1])
def test_a_query_for_zero_messages_is_rejected(topic, count):
    text = refused(
        "MAX_MESSAGES", InvalidInputError, lambda: topic.lookup.query("t", "k", max_messages=count)
    )
    assert str(count) in text
    assert topic.lookup.query("t", "k", max_messages=1) == []


@pytest.mark.parametrize("given", [pa.table({"body": [b"x"]}), [b"x"], None])
def test_append_batch_requires_a_record_batch(topic, given):
    text = refused("NOT_A_BATCH", SchemaError, lambda: topic.append_batch(given, topic="t"))
    assert type(given).__name__ in text


@pytest.mark.parametrize("key", [None, 3, b"k"])
def test_a_lookup_key_must_be_a_str(topic, key):
    text = refused("NOT_A_TEXT", InvalidInputError, lambda: topic.lookup.query("t", key))
    assert repr(key) in text


@pytest.mark.parametrize("offsets", [5, [(0, 1)], None])
def test_group_offsets_must_be_a_mapping_by_queue(topic, offsets):
    text = refused("NOT_OFFSETS", InvalidInputError, lambda: topic.groups.commit("g", "t", offsets))
    assert repr(offsets) in text
    assert topic.groups.committed("g", "t") == {}


def test_an_unknown_kind_of_pending_messages_is_rejected(topic):
    text = refused("PENDING_KIND", InvalidInputError, lambda: topic.views.pending("sched"))
    assert "scheduled" in text
    assert "half" in text


@pytest.mark.parametrize("view", [None, 5, "log", ["groups"]])
def test_an_unknown_view_is_rejected(topic, view):
    text = refused("VIEW_UNKNOWN", InvalidInputError, lambda: topic.views.plan(view))
    assert repr(view) in text
    assert "commitlog" in text


def test_arguments_of_wrong_type_are_rejected_with_their_origin(topic):
    text = refused("WRONG_TYPE", InvalidInputError, lambda: topic.history.holds(5))
    assert "Store.history.mark" in text
    text = refused("WRONG_TYPE", InvalidInputError, lambda: topic.sink.publish_anonymous(["x"]))
    assert "Stager.finish" in text


@pytest.mark.parametrize("group", [5, None, b"g", ["g"]])
def test_a_group_name_must_be_a_str(topic, group):
    refused("GROUP_ILLEGAL", GroupNameError, lambda: topic.groups.commit(group, "t", {0: 1}))


@pytest.mark.parametrize("name", ["../../t", "a\0b", "\ud800", "..", "", "x" * 256])
def test_a_topic_name_that_is_not_a_valid_folder_name_is_rejected(topic, name):
    with pytest.raises(InvalidInputError) as failure:
        topic.queue_range(name, 0)
    assert failure.value.remedy


@pytest.mark.parametrize("body", ["text", None, 5, bytearray(b"x")])
def test_a_message_whose_body_is_not_bytes_is_refused_when_it_is_made(body):
    with pytest.raises(MessageError, match="Encode it") as caught:
        Message(topic="t", body=body)
    assert caught.value.code == "MESSAGE_ILLEGAL"
