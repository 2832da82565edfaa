"""The records of RocketMQ's transactions: half messages, and the op messages that resolve them.

A half message is stored in the half topic, without transaction bits. Its properties are its
destination (REAL_TOPIC, REAL_QID), the producer group to check with (PGROUP) and the number of
checks (TRANSACTION_CHECK_TIMES). Each check re-appends it as a copy. An op message has the tag `d`.
Its body has the queue offsets of resolved half messages: one decimal number, as 4.x writes and
reads it, or since 5.1 several, each followed by a comma. Source: `TransactionalMessageBridge`,
`TransactionalMessageServiceImpl`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyrocket.formats.fastjson import parse_java_long
from pyrocket.formats.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    decode_properties,
)
from pyrocket.formats.record_decode import Record
from pyrocket.formats.record_fields import RecordFields

OP_TAGS = "d"
"""The tag of an op message that lists resolved half messages."""

_NAMES = (
    *(UNIQ_KEY, PGROUP, REAL_TOPIC, REAL_QID, TRANSACTION_CHECK_TIMES),
    *(CHECK_IMMUNITY_TIME_IN_SECONDS, TRAN_PREPARED_QUEUE_OFFSET),
)
_DELAYS = (DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """A half message: location, destination, and the group to check with. Times are epoch ms.

    group, transaction_id (UNIQ_KEY), topic: "" if the record has none. queue_id: of the topic; -1
    if the record has none. checks: number of times it was re-appended for a check; None for never,
    -1 if the value is not a number. immune_s: seconds after the born time during which the message
    is not checked; None if not set, -1 if not a number. prepared: queue offset of the original half
    message, if this is a copy that was re-appended during the immunity time. content: checksum and
    length of the stored body.
    """

    queue_offset: int
    physical_offset: int
    size: int
    born_timestamp: int
    store_timestamp: int
    group: str
    transaction_id: str
    topic: str
    queue_id: int
    checks: int | None
    immune_s: int | None
    prepared: int | None
    content: tuple[int, int]

    @property
    def identity(self) -> tuple[str, int, tuple[int, int]] | None:
        """A key that is the same for all copies of a half message; None without an id."""
        if not self.transaction_id:
            return None
        return self.transaction_id, self.born_timestamp, self.content


def read_halves(run: RecordFields) -> Iterator[HalfMessage]:
    """Yield the half messages of a run of the half topic's queue; the records must be valid."""
    properties = run.property_columns
    fields = zip(
        *(run.queue_offset.tolist(), run.physical_offset.tolist(), run.sizes.tolist()),
        *(run.field("born_timestamp").tolist(), run.store_timestamp.tolist()),
        *(run.field("crc").tolist(), run.body_length.tolist()),
        *(properties.column(name).to_pylist() for name in _NAMES),
        strict=True,
    )
    for offset, at, size, born, stored, crc, length, *own in fields:
        yield _half(offset, at, size, born, stored, (crc, length), *own)


def half_of(record: Record) -> HalfMessage:
    """Return the half message of one record of the half topic."""
    own = decode_properties(record.properties)
    return _half(
        *(record.queue_offset, record.physical_offset, record.size),
        *(record.born_timestamp, record.store_timestamp, (record.crc, len(record.body))),
        *map(own.get, _NAMES),
    )


def _half(
    queue_offset: int,
    physical_offset: int,
    size: int,
    born: int,
    stored: int,
    content: tuple[int, int],
    unique_id: str | None,
    group: str | None,
    topic: str | None,
    queue_id: str | None,
    *numbers: str | None,
) -> HalfMessage:
    checks, immune, prepared = map(parse_java_long, numbers)
    wanted = parse_java_long(queue_id)
    return HalfMessage(
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        size=size,
        born_timestamp=born,
        store_timestamp=stored,
        group=group or "",
        transaction_id=unique_id or "",
        topic=topic or "",
        queue_id=-1 if wanted is None else wanted,
        checks=checks,
        immune_s=immune,
        prepared=prepared,
        content=content,
    )


def read_ops(run: RecordFields) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each op message's queue offset, and the queue offsets of the half messages it lists.

    An op message that is invalid or has other tags lists none.
    """
    tags = run.property_columns.column(TAGS).to_pylist()
    bodies = run.bodies().to_pylist()
    for offset, tag, body in zip(run.queue_offset.tolist(), tags, bodies, strict=True):
        yield offset, _named(body) if tag == OP_TAGS else ()


def _named(body: bytes) -> tuple[int, ...]:
    words = body.decode("ascii", "replace").split(",")
    offsets = (parse_java_long(word) for word in words)
    return tuple(offset for offset in offsets if offset is not None and offset >= 0)


def wants_delay(properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties is delivered with a delay after it is committed."""
    return any(name in properties for name in _DELAYS)


def change_properties(
    block: bytes, changes: Mapping[str, str], without: tuple[str, ...] = ()
) -> bytes:
    """Return the properties block with `changes` set and the properties in `without` removed."""
    removed = tuple(f"{name}\x01".encode() for name in (*changes, *without))
    kept = [entry for entry in block.split(b"\x02") if entry and not entry.startswith(removed)]
    new = [f"{name}\x01{value}".encode() for name, value in changes.items()]
    return b"".join(entry + b"\x02" for entry in (*kept, *new))
