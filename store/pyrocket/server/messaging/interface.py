"""The messages and enums of `apache.rocketmq.v2`, and its times."""

from functools import cache
from typing import Any

from pyrocket.server.requests import parsed
from pyrocket.wire.descriptors import message_class

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"

_MAX_MS = 253_402_300_799_999
"""The last millisecond of a protobuf timestamp: the end of the year 9999."""

_ENUMS = {
    "AddressScheme": ("Endpoints", "scheme"),
    "ClientType": ("HeartbeatRequest", "client_type"),
    "Code": ("Status", "code"),
    "DigestType": ("Digest", "type"),
    "Encoding": ("SystemProperties", "body_encoding"),
    "FilterType": ("FilterExpression", "type"),
    "Language": ("UA", "language"),
    "MessageType": ("SystemProperties", "message_type"),
    "Permission": ("MessageQueue", "permission"),
    "QueryOffsetPolicy": ("QueryOffsetRequest", "query_offset_policy"),
    "TransactionResolution": ("EndTransactionRequest", "resolution"),
    "TransactionSource": ("EndTransactionRequest", "source"),
}
"""A field of each enum."""


def new(message: str, /, **fields: Any) -> Any:
    """Return a message of the interface."""
    return message_class(f"{PACKAGE}.{message}")(**fields)


def parse(message: str, data: bytes) -> Any:
    """Return a request of the interface. Raises InvalidInputError, DecodeError."""
    return parsed(message_class(f"{PACKAGE}.{message}"), data, message)


@cache
def _kind(enum: str) -> Any:
    message, field = _ENUMS[enum]
    return message_class(f"{PACKAGE}.{message}").DESCRIPTOR.fields_by_name[field].enum_type


@cache
def number(enum: str, name: str) -> int:
    """Return the number of a value of an enum, such as ("Code", "OK")."""
    return int(_kind(enum).values_by_name[name].number)


def name_of(enum: str, value: int) -> str:
    """Return the name of a value of an enum; empty if it is unknown."""
    descriptor = _kind(enum).values_by_number.get(value)
    return "" if descriptor is None else str(descriptor.name)


def ms_of(time: Any) -> int:
    """Return a timestamp or duration in milliseconds, limited to the range of a timestamp."""
    ms = int(time.seconds) * 1000 + int(time.nanos) // 1_000_000
    return min(max(ms, -_MAX_MS), _MAX_MS)


def put_ms(time: Any, ms: int) -> None:
    """Set a timestamp or duration to milliseconds."""
    ms = min(max(ms, 0), _MAX_MS)
    time.seconds, time.nanos = ms // 1000, ms % 1000 * 1_000_000
