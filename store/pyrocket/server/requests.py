"""Parses requests, whose number of values is limited.

An empty message takes up two bytes of a request, and up to a thousand bytes in memory. Therefore
the values are counted before the request is parsed.
"""

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pyrocket.errors import InvalidInputError
from pyrocket.wire.descriptors import message_class

MAX_VALUES = 100_000
"""Maximum number of topics, queues, ranges and other values in one request."""

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MORE = 0x80
"""The bit that all bytes of a varint have, except the last one."""

_INNER_BYTES = bytes(range(_MORE, 256))

_counting = threading.Lock()
"""One thread at a time counts, because all others wait for the interpreter meanwhile."""

_Fields = Mapping[int, "tuple[bool, _Fields]"]
"""The repeated fields and those with messages, by number: whether they have packed numbers, and
the fields of their messages."""


def parsed(kind: type[Any], data: bytes, call: str) -> Any:
    """Return a request. Raises InvalidInputError (REQUEST_TOO_LONG), DecodeError."""
    if len(data) > MAX_VALUES:  # Each value takes up at least a byte.
        try:
            with _counting:
                left = _Count(data).left(0, len(data), _fields(kind.DESCRIPTOR), MAX_VALUES)
        except IndexError:
            left = 0  # It is cut off, and cannot be parsed.
        if left < 0:
            raise InvalidInputError(
                f"the request of {call} has more than {MAX_VALUES} values.",
                remedy="Ask for fewer topics, queues or ranges in one call.",
                code="REQUEST_TOO_LONG",
            )
    return kind.FromString(data)


@cache
def _fields(kind: Descriptor) -> _Fields:
    """Return the fields to count. No message contains messages of its own kind."""
    empty = message_class(kind.full_name)()
    return {
        field.number: (
            not field.message_type and field.type not in _TEXTS,
            _fields(field.message_type) if field.message_type else {},
        )
        for field in kind.fields
        if hasattr(getattr(empty, field.name), "MergeFrom")
    }


class _Count:
    """Counts the values of a request."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def left(self, at: int, end: int, fields: _Fields, most: int) -> int:
        """Return how many values may follow those of a message; negative if there are too many.

        Raises IndexError if the message is cut off.
        """
        data = self._data
        while at < end and most >= 0:
            tag = data[at]
            at += 1
            if tag & _MORE:
                tag, at = self._varint(at - 1)
            known = fields.get(tag >> 3)
            most -= known is not None
            if tag & 7 == _LENGTH:
                size = data[at]
                at += 1
                if size & _MORE:
                    size, at = self._varint(at - 1)
                if known is not None:
                    most = self._inside(at, at + size, known, most)
                at += size
            elif tag & 7 == _VARINT:
                while data[at] & _MORE:
                    at += 1
                at += 1
            else:
                at += {_FIXED64: 8, _FIXED32: 4}.get(tag & 7, 0)
        return most

    def _inside(self, at: int, end: int, field: "tuple[bool, _Fields]", most: int) -> int:
        is_packed, fields = field
        if is_packed:
            return most - len(self._data[at:end].translate(None, _INNER_BYTES))
        return self.left(at, end, fields, most) if fields else most

    def _varint(self, at: int) -> tuple[int, int]:
        """Return a number, and the position after it."""
        value = shift = 0
        while True:
            byte = self._data[at]
            value |= (byte & ~_MORE) << shift
            at, shift = at + 1, shift + 7
            if not byte & _MORE:
                return value, at
