"""Arguments of wrong type or out of range are rejected with a specific code."""

import pytest
from pyrocket import Message
from pyrocket.errors import (
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


@pytest.mark.parametrize(
    ("code", "kind", "call"),
    [
        ("NOT_A_BATCH", SchemaError, lambda store: store.append_batch([b"x"], topic="t")),
        ("NOT_OFFSETS", InvalidInputError, lambda store: store.groups.commit("g", "t", [(0, 1)])),
        ("RESET_PLACE", InvalidInputError, lambda store: store.groups.reset("g", "t", "first")),
        ("PENDING_KIND", InvalidInputError, lambda store: store.views.pending("sched")),
        ("VIEW_UNKNOWN", InvalidInputError, lambda store: store.views.plan("log")),
    ],
)
def test_an_argument_has_a_code_of_its_own(topic, code, kind, call):
    refused(code, kind, lambda: call(topic))


def test_arguments_of_wrong_type_are_rejected_with_their_origin(topic):
    text = refused("WRONG_TYPE", InvalidInputError, lambda: topic.history.holds(5))
    assert "Store.history.mark" in text
    text = refused("WRONG_TYPE", InvalidInputError, lambda: topic.sink.publish_anonymous(["x"]))
    assert "Stager.finish" in text


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
