r"""The records of RocketMQ's message trace, which are the bodies of messages in the trace topic.

A record is its type and its fields, separated by \x01; each record ends with \x02. The fields of a
class below are those of the format, in its order. Missing tags and keys are "null": RocketMQ's
decoder ignores empty fields at the end of a record, and fails for a SubBefore with empty keys.

Source: `TraceDataEncoder` of RocketMQ's client, which encodes these types alike in 4.9 and 5.5. 5.5
also has the type Recall, which is not written here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

_FIELD_END, _RECORD_END = "\x01", "\x02"
_SEPARATORS = str.maketrans("", "", _FIELD_END + _RECORD_END)
_NONE = "null"

DEFAULT_REGION = "DefaultRegion"
"""`MixAll.DEFAULT_TRACE_REGION_ID`."""

NORMAL, HALF, COMMIT_OR_ROLLBACK, DELAYED = range(4)
"""Numbers of RocketMQ's `MessageType`. Its producers use NORMAL for FIFO messages, too."""

CONSUMED, EXCEPTION_RAISED, NOTHING_RETURNED, CONSUMPTION_FAILED = 0, 2, 3, 4
"""Numbers of RocketMQ's `ConsumeReturnType`."""

MAX_BYTES = 30_000
"""Maximum size of a trace message's body, which has all keys: properties have at most 32,767."""


class Pub(NamedTuple):
    """A sent message. Times are in milliseconds; `cost_ms` is the duration of the send."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    message_type: int
    offset_message_id: str
    success: bool


class SubBefore(NamedTuple):
    """A delivered message. The `request_id` connects it with its SubAfter."""

    timestamp: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None


class SubAfter(NamedTuple):
    """The end of a delivery; `cost_ms` is the time that the consumer took."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    context_code: int
    timestamp: int
    group: str


class EndTransaction(NamedTuple):
    """The end of a transaction; `state` is the name of a `LocalTransactionState`.

    from_check: Whether the producer decided when the broker checked the half message.
    """

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    message_type: int
    transaction_id: str
    state: str
    from_check: bool


Trace = Pub | SubBefore | SubAfter | EndTransaction

_KINDS = {kind.__name__: kind for kind in (Pub, SubBefore, SubAfter, EndTransaction)}


def encode(trace: Trace) -> str:
    """Return a record; separators in its fields are omitted."""
    return _FIELD_END.join((type(trace).__name__, *map(_text, trace))) + _RECORD_END


def trace_keys(trace: Trace) -> list[str]:
    """Return the keys of a record for the message that contains it: the message id, and the keys.

    Source: `TraceDataEncoder`, `AsyncTraceDispatcher`.
    """
    words = f"{trace.message_id} {trace.keys or ''}".translate(_SEPARATORS).split(" ")
    return [word for word in words if word]


def decode(text: str) -> list[Trace]:
    """Return the records of a body, without those of unknown types. Raises ValueError.

    Shorter records of older clients have empty strings, zeros and `False` in the missing fields.
    """
    lines = (line.split(_FIELD_END) for line in text.split(_RECORD_END))
    return [_decode(_KINDS[kind], fields) for kind, *fields in lines if kind in _KINDS]


def _text(value: object) -> str:
    if value is None:
        return _NONE
    return str(value).lower() if isinstance(value, bool) else str(value).translate(_SEPARATORS)


def _decode(kind: Any, fields: Sequence[str]) -> Trace:
    names = kind._fields
    if kind is Pub and len(fields) == len(names) - 1:
        # Old clients do not write the offset message id.
        fields = [*fields[:-1], "", fields[-1]]
    texts = [*fields, *[""] * (len(names) - len(fields))]
    types = kind.__annotations__.values()
    trace: Trace = kind(
        *(_value(annotation, text) for annotation, text in zip(types, texts, strict=False))
    )
    return trace


def _value(kind: object, text: str) -> object:
    if kind is bool:
        return text.lower() == "true"
    if kind is int:
        return int(text or 0)
    return None if kind is not str and text == _NONE else text
