"""Frames of RocketMQ's remoting protocol: requests, and the answers to them.

    length         4 bytes: the size of what follows, at most 16 MiB
    type           1 byte: how the header is encoded, 0 for JSON, 1 for binary
    header length  3 bytes
    header         code, flag, opaque, version, remark, ext fields
    body           the rest

Numbers are big-endian. Requests are sent with JSON headers, which every server reads; a server of
RocketMQ 5 answers in the encoding that it is configured for. Source: `RemotingCommand`,
`RocketMQSerializable`, `NettyDecoder`.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_FRAME_BYTES = 16 << 20
"""The largest frame that RocketMQ sends or accepts; it closes the connection of a larger one."""

VERSION = 409
"""The version that requests claim: V4_9_8 in `MQVersion`."""

ANSWER = 1
"""The bit of `Frame.flag` that an answer has."""

LENGTH_BYTES = 4
_JSON, _BINARY = 0, 1
_BINARY_HEAD = slice(0, 2), slice(3, 5), slice(5, 9), slice(9, 13)
_NUMBERS = ("code", "opaque", "flag", "version")
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_ONLY_TEXT, _ONLY_INT = frozenset([str]), frozenset([int])


class FrameError(ValueError):
    """Bytes that are not a frame."""


class Frame(NamedTuple):
    """A request or an answer.

    Attributes:
        code: What is requested, or the result.
        fields: The ext fields, which are named values: a dict. All values are text, also numbers.
        body: In a received frame, part of the buffer into which it was received.
        remark: What a server says about a failure.
        opaque: Assigns the answer to its request.
        flag: ANSWER for an answer.
        version: The sender's release in `MQVersion`.
    """

    code: int
    fields: Mapping[str, str] = {}
    body: bytes | memoryview = b""
    remark: str = ""
    opaque: int = 0
    flag: int = 0
    version: int = VERSION

    @property
    def is_answer(self) -> bool:
        """Whether this is the answer to a request."""
        return bool(self.flag & ANSWER)


_dumps = json.JSONEncoder(separators=(",", ":")).encode
_loads = json.JSONDecoder(strict=False).decode


def encode_head(frame: Frame, opaque: int) -> bytes:
    """Return the bytes before the body of a frame with this `opaque` and a JSON header.

    Raises FrameError if RocketMQ would refuse it because of its size.
    """
    header = (
        f'{{"code":{frame.code},"language":"PYTHON","version":{frame.version},"opaque":{opaque}'
        f',"flag":{frame.flag},"serializeTypeCurrentRPC":"JSON","extFields":{_dumps(frame.fields)}}}'
    )
    text = header.encode()
    length = LENGTH_BYTES + len(text) + len(frame.body)
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {length} bytes; RocketMQ allows {MAX_FRAME_BYTES}")
    return length.to_bytes(4, "big") + len(text).to_bytes(4, "big") + text


def decode_frame(data: memoryview) -> Frame:
    """Return the frame whose bytes after the length are `data`. Raises FrameError."""
    kind, size = data[0], int.from_bytes(data[1:4], "big")
    header, body = data[4 : 4 + size], data[4 + size :]
    if not 0 < size == len(header):
        raise FrameError(f"a header of {size} bytes in a frame of {len(data)} bytes")
    try:
        if kind == _JSON:
            return _of_json(_loads(str(header, "utf-8")), body)
        if kind == _BINARY:
            return _of_binary(header, body)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"a header that cannot be read: {type(error).__name__}") from error
    raise FrameError(f"a header of type {kind}")


def _of_json(header: Any, body: memoryview) -> Frame:
    fields = header.get("extFields") or {}
    if not _ONLY_TEXT.issuperset(map(type, fields.values())):
        fields = {name: _text(value) for name, value in fields.items() if value is not None}
    code, *numbers = values = [header.get(name, 0) for name in _NUMBERS]
    is_known = _ONLY_INT.issuperset(map(type, values))
    if not is_known or min(values) < _INT_MIN or max(values) > _INT_MAX:
        raise ValueError("not a number of 32 bits")
    return Frame(code, fields, body, _text(header.get("remark") or ""), *numbers)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_binary(header: memoryview, body: memoryview) -> Frame:
    code, version, opaque, flag = (_int(header[place]) for place in _BINARY_HEAD)
    remark, at = _run(header, _BINARY_HEAD[-1].stop, 4)
    pairs, _ = _run(header, at, 4)
    fields: dict[str, str] = {}
    at = 0
    while at < len(pairs):
        name, at = _run(pairs, at, 2)
        value, at = _run(pairs, at, 4)
        fields[str(name, "utf-8")] = str(value, "utf-8")
    return Frame(code, fields, body, str(remark, "utf-8"), opaque, flag, version)


def _int(data: memoryview) -> int:
    return int.from_bytes(data, "big", signed=True)


def _run(data: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    """Return the bytes after their length, which is a number of `size` bytes, and their end."""
    start = at + size
    end = start + _int(data[at:start])
    if not start <= end <= len(data):
        raise ValueError("the header ends in a field")
    return data[start:end], end
