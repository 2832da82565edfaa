"""State changes of consumer groups, and their records in the log.

A record is a message of POP_TOPIC, queue 0, whose body is JSON: a list of changes, each a list that
starts with its kind. It has no keys, which would fill the key index. A single change is idempotent,
and so is a sequence of changes that is repeated in order: a snapshot may include changes whose
records follow the snapshot. A change contains the queue's previous cursor. If earlier records are
lost, messages are therefore delivered again and never skipped.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias, get_args

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.message_keys import keys_of_message
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch, batch_of_records
from pyrocket.formats.system_topics import POP_TOPIC


@dataclass(frozen=True, slots=True)
class _OfQueue:
    group: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Start(_OfQueue):
    """The group starts or restarts at an offset of a queue; earlier state is discarded."""

    KIND: ClassVar = "start"
    offset: int


@dataclass(frozen=True, slots=True)
class SkipTo(_OfQueue):
    """All messages before an offset are acked, or have been deleted."""

    KIND: ClassVar = "skip"
    offset: int


@dataclass(frozen=True, slots=True)
class Deliver(_OfQueue):
    """Messages were delivered at `now`; all from `cursor` to `next` are in flight or acked.

    `offsets` are ascending. `attempts`, `delivered` and `keys` have a value for each offset;
    `keys` may be empty. `attempts` include this delivery. If `delivered` is 0, the message is in
    flight but has to wait for earlier messages.
    """

    KIND: ClassVar = "deliver"
    cursor: int
    next: int
    pop: int
    now: int
    visible: int
    offsets: Sequence[int]
    attempts: Sequence[int]
    delivered: Sequence[int]
    keys: Sequence[int]


@dataclass(frozen=True, slots=True)
class Ack(_OfQueue):
    """Messages are acked, or were moved to another topic."""

    KIND: ClassVar = "ack"
    cursor: int
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Show(_OfQueue):
    """Messages become visible at `visible`; their pop is replaced unless `pop` is 0."""

    KIND: ClassVar = "show"
    cursor: int
    offsets: Sequence[int]
    visible: int
    pop: int


@dataclass(frozen=True, slots=True)
class Repeat(_OfQueue):
    """Messages before the cursor were delivered once by a RocketMQ broker, and are not acked."""

    KIND: ClassVar = "repeat"
    offsets: Sequence[int]
    visible: int


@dataclass(frozen=True, slots=True)
class Saved(_OfQueue):
    """The committed offset in RocketMQ's file will change from `before` (-1: none) to `offset`."""

    KIND: ClassVar = "saved"
    before: int
    offset: int


@dataclass(frozen=True, slots=True)
class Forget(_OfQueue):
    """The group's offset in a queue, or the topic, was deleted; the queue's state is removed."""

    KIND: ClassVar = "forget"


@dataclass(frozen=True, slots=True)
class Drop:
    """A group was deleted."""

    KIND: ClassVar = "drop"
    group: str


OfQueue: TypeAlias = Start | SkipTo | Deliver | Ack | Show | Repeat | Saved
Event: TypeAlias = OfQueue | Forget | Drop
_KINDS: dict[str, type[Event]] = {kind.KIND: kind for kind in get_args(Event)}
_NAMES = {kind: [field.name for field in fields(kind)] for kind in _KINDS.values()}


def encode_events(events: Sequence[Event], born_ms: int) -> EncodedBatch:
    """Return a record of changes, without offsets and store time."""
    content = [
        [event.KIND, *(getattr(event, name) for name in _NAMES[type(event)])] for event in events
    ]
    data = encode_record(
        topic=POP_TOPIC,
        queue_id=0,
        body=json.dumps(content, separators=(",", ":")).encode(),
        properties=b"",
        born_timestamp=born_ms,
    )
    return batch_of_records(POP_TOPIC, 0, [data], "", keys_of_message(POP_TOPIC, "", []))


def decode_events(body: bytes) -> list[Event]:
    """Return the changes of a record. Raises StoreDamagedError."""
    try:
        return [_KINDS[kind](*values) for kind, *values in json.loads(body)]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(
            f"a record of {POP_TOPIC} cannot be parsed: {error}.",
            remedy="Restore the log from a backup.",
        ) from error
