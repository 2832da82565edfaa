"""The values of a request are counted before it is parsed."""

import random
import tracemalloc

import pytest
from google.protobuf.message import DecodeError
from pyrocket.errors import InvalidInputError
from pyrocket.server import requests
from pyrocket.server.requests import MAX_VALUES, parsed
from pyrocket.wire.descriptors import message_class

V2 = "apache.rocketmq.v2"
EMPTY_ONES = {
    "queues": ("pyrocket.v1.QueuesRequest", b"\x0a\x00"),
    "queues with a long tag": ("pyrocket.v1.QueuesRequest", b"\x8a\x00\x00"),
    "topics": ("pyrocket.v1.BoundsRequest", b"\x0a\x00"),
    "acks": (f"{V2}.AckMessageRequest", b"\x1a\x00"),
    "messages": (f"{V2}.SendMessageRequest", b"\x0a\x00"),
    "keys of messages": (f"{V2}.SendMessageRequest", b"\x0a\x04\x1a\x02\x12\x00"),
    "packed marks": ("pyrocket.v1.SplitAtBytesRequest", b"\x0a\x06\x12\x04\x01\x02\x03\x04"),
    "marks": ("pyrocket.v1.SplitAtBytesRequest", b"\x0a\x04\x10\x01\x10\x02"),
}


@pytest.mark.parametrize("case", EMPTY_ONES)
def test_too_many_values_are_refused_before_they_take_up_memory(case, monkeypatch):
    """A tenth of the limit is enough to show it, and counting with traced memory is slow."""
    monkeypatch.setattr(requests, "MAX_VALUES", MAX_VALUES // 10)
    name, one = EMPTY_ONES[case]
    kind = message_class(name)
    assert parsed(kind, one * 1000, "Call").ByteSize()
    monkeypatch.setattr(kind, "FromString", None)
    tracemalloc.start()
    with pytest.raises(InvalidInputError) as caught:
        parsed(kind, one * (MAX_VALUES // 10 + 1), "Call")
    assert tracemalloc.get_traced_memory()[1] < 400 << 10
    tracemalloc.stop()
    assert caught.value.code == "REQUEST_TOO_LONG"


def test_the_limit_is_100_000_values():
    kind = message_class("pyrocket.v1.BoundsRequest")
    assert len(parsed(kind, b"\x0a\x00" * 100_000, "Call").topics) == MAX_VALUES
    with pytest.raises(InvalidInputError):
        parsed(kind, b"\x0a\x00" * 100_001, "Call")


def test_long_texts_and_bodies_count_as_one_value():
    kind = message_class(f"{V2}.SendMessageRequest")
    sent = kind(messages=[{"body": b"\x0a\x00" * MAX_VALUES, "user_properties": {"a": "b" * 999}}])
    assert parsed(kind, sent.SerializeToString(), "Call") == sent


def test_any_bytes_are_counted_or_refused(monkeypatch):
    monkeypatch.setattr(requests, "MAX_VALUES", 0)
    rng, outcomes = random.Random(7), set()
    for name, one in EMPTY_ONES.values():
        kind = message_class(name)
        for _ in range(300):
            data = bytearray(one * 9)
            for _ in range(rng.randrange(5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                parsed(kind, bytes(data[: rng.randrange(len(data))]), "Call")
            except (InvalidInputError, DecodeError) as error:
                outcomes.add(type(error))
    assert outcomes == {InvalidInputError, DecodeError}
