"""Frames as bytes: what RocketMQ sends is read, and other bytes are errors."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.base.credentials import Credentials
from pyrocket.remoting.connection import signed
from pyrocket.remoting.frame_reader import FrameReader
from pyrocket.remoting.frames import (
    ANSWER,
    MAX_FRAME_BYTES,
    Frame,
    FrameError,
    decode_frame,
    encode_head,
)
from support.rocketmq_frames import binary_frame, framed, json_frame

FIELDS = {"nextBeginOffset": "7", "text": 'ä"\x01\x02'}
CAPTURED = bytes.fromhex(
    "00000028 01000024 0069 00 0199 00000009 00000000 00000000"
    "0000000f 0005 746f706963 00000004 4c616254"
)
"""A request of RocketMQ 4.9.8 with a binary header."""

MUTATIONS = 5_000


def read(data, step=None):
    """Return the frames of a connection that sends `data` in parts of `step` bytes."""
    reader, frames = FrameReader(), []
    while data:
        room = reader.room()
        size = min(len(room), len(data), step or len(data))
        room[:size], data = data[:size], data[size:]
        frames += reader.received(size)
    return frames


@pytest.mark.parametrize("encode", [json_frame, binary_frame])
@pytest.mark.parametrize("step", [None, 1, 7, 1000])
def test_an_answer_is_read_in_both_encodings(encode, step):
    sent = encode(19, 5, FIELDS, b"body" * 100, "OFFSET_OVERFLOW_ONE", flag=ANSWER, version=513)
    expected = Frame(19, FIELDS, b"body" * 100, "OFFSET_OVERFLOW_ONE", 5, ANSWER, 513)
    first, second = read(sent * 2, step)
    assert first == second == expected
    assert first.is_answer


@pytest.mark.parametrize("encode", [json_frame, binary_frame])
def test_an_answer_without_fields_remark_and_body_is_read(encode):
    assert read(encode(0, 1)) == [Frame(0, {}, b"", "", 1, 1, 409)]


def test_a_captured_request_is_read():
    assert read(CAPTURED) == [Frame(105, {"topic": "LabT"}, b"", "", 9, 0, 409)]


def test_a_request_is_sent_as_java_sends_it():
    data = encode_head(Frame(105, {"topic": "LabT"}, b"xyz"), 8) + b"xyz"
    size = int.from_bytes(data[4:8], "big")
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert data[8 + size :] == b"xyz"
    assert json.loads(data[8 : 8 + size]) == {
        "code": 105,
        "language": "PYTHON",
        "version": 409,
        "opaque": 8,
        "flag": 0,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": {"topic": "LabT"},
    }
    assert read(data) == [Frame(105, {"topic": "LabT"}, b"xyz", opaque=8)]


@given(
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    fields=st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9), max_size=4),
    remark=st.text(max_size=9),
    body=st.binary(max_size=99),
)
def test_every_frame_is_read_back(code, opaque, fields, remark, body):
    sent = Frame(code, fields, body, opaque=opaque)
    assert read(encode_head(sent, opaque) + sent.body) == [sent]
    answer = Frame(code, fields, body, remark, opaque)
    assert read(json_frame(code, opaque, fields, body, remark, flag=0)) == [answer]
    assert read(binary_frame(code, opaque, fields, body, remark, flag=0)) == [answer]


def test_bodies_stay_valid_while_more_is_received():
    data = b"".join(json_frame(0, n, None, bytes([n]) * 300_000) for n in range(12))
    bodies = [bytes([n]) * 300_000 for n in range(12)]
    assert [bytes(frame.body) for frame in read(data, 70_000)] == bodies


def test_numbers_in_fields_are_text():
    header = b'{"code":0,"flag":1,"opaque":1,"extFields":{"a":7,"b":true,"c":null,"d":"x"}}'
    (frame,) = read(framed(0, header, b""))
    assert frame.fields == {"a": "7", "b": "true", "d": "x"}


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request",
        b"\x15\x03\x03\x00\x02\x02\x16",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\xff\xff{}{}",
        framed(2, b"{}", b""),
        framed(0, b"[]", b""),
        framed(0, b"\xff\xfe", b""),
        framed(0, b"[" * 100_000, b""),
        framed(0, b'{"code":"0"}', b""),
        framed(0, b'{"code":' + b"9" * 5_000 + b"}", b""),
        framed(0, b'{"code":0,"extFields":[1]}', b""),
        framed(1, CAPTURED[8:-1], b""),
        framed(1, CAPTURED[8:21] + b"\x7f\xff\xff\xff", b""),
        framed(1, CAPTURED[8:17] + b"\xff" * 12, b""),
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
    ],
)
def test_other_bytes_are_no_frame(data):
    with pytest.raises(FrameError):
        read(data)


def test_a_frame_that_rocketmq_would_refuse_is_not_sent():
    with pytest.raises(FrameError, match="RocketMQ allows 16777216"):
        encode_head(Frame(310, {}, bytes(MAX_FRAME_BYTES)), 1)


def test_mutated_frames_are_frames_or_errors():
    """No mutation hangs, crashes, or takes more memory than the largest frame."""
    random.seed(15)
    whole = [encode(0, 7, FIELDS, b"body", "FOUND") for encode in (json_frame, binary_frame)]
    outcomes = {"read": 0, "error": 0}
    for number in range(MUTATIONS):
        data = bytearray(b"".join(random.sample(whole, 2)))
        for _ in range(1 + number % 4):
            mutate(data)
        reader = FrameReader()
        try:
            for at in range(0, len(data), 50):
                part = data[at : at + 50]
                while part:
                    room = reader.room()
                    assert len(room) <= MAX_FRAME_BYTES + 4
                    size = min(len(room), len(part))
                    room[:size], part = part[:size], part[size:]
                    assert all(type(frame.code) is int for frame in reader.received(size))
            outcomes["read"] += 1
        except FrameError:
            outcomes["error"] += 1
    assert min(outcomes.values()) > MUTATIONS // 20


def mutate(data):
    """Change one bit, cut the end, or repeat or remove a part."""
    at = random.randrange(len(data))
    kind = random.randrange(4)
    if kind == 0:
        data[at] ^= 1 << random.randrange(8)
    elif kind == 1:
        del data[at + 1 :]
    elif kind == 2:
        data[at:at] = data[at : at + 5]
    else:
        del data[at : at + random.randrange(1, 5)]
        data[:] = data or b"\0"


def test_a_signature_is_that_of_java():
    credentials = Credentials(access_key="ak123", secret_key="sk45678")
    request = signed(credentials, Frame(10, {"topic": "LabT", "b": "2"}, b"hi"))
    assert request.fields["AccessKey"] == "ak123"
    assert request.fields["Signature"] == "BsuegZgLmA9TD694ivpUZv081hA="
    data = encode_head(request, 1) + request.body
    assert decode_frame(memoryview(data)[4:]).fields == request.fields


def test_a_request_without_user_is_not_signed_and_secrets_are_not_shown():
    request = Frame(10, {"topic": "LabT"})
    assert signed(Credentials(), request) is request
    credentials = Credentials(access_key="ak123", secret_key="sk45678", ca=b"pem")
    assert "sk45678" not in repr(credentials)
