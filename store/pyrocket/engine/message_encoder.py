"""Checks, routes and encodes messages before they are appended; writes nothing.

A batch is split by topic. A row's queue id has priority over its sharding key, which selects a
queue as RocketMQ's `SelectMessageQueueByHash` does. Rows with neither are spread evenly over the
write queues, in one run per queue, so that the messages of a queue are adjacent in the log and are
read sequentially.
"""

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.engine.delayed_routing import DelayRouter, Destination, QueueIds, RoutedRows
from pyrocket.errors import MessageError, TopicNameError, TopicNotFoundError
from pyrocket.formats.compression import stored_body
from pyrocket.formats.hashes import queue_for_key, queues_for_keys
from pyrocket.formats.message_keys import hex_column, keys_of_message
from pyrocket.formats.properties import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    NAME_END,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    VALUE_END,
    check_message_kinds,
    encode_properties,
    find_illegal_property,
)
from pyrocket.formats.record import STORE_HOST, V6_BYTES, encode_record
from pyrocket.formats.record_batch import (
    ENCODE_BYTES,
    EncodedBatch,
    batch_of_records,
    encode_batch,
    with_crc_room,
)
from pyrocket.formats.send_columns import SendColumns
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.message import Message

_MONTH_MS = 31 * 86_400_000


@dataclass(frozen=True)
class AppendRoute:
    """A topic, and the number of its write queues."""

    topic: str
    queues: int


@dataclass(frozen=True)
class EncodedMessage:
    """An encoded message for its queue; `is_diverted` if a system topic stores it first."""

    record: EncodedBatch
    unique_id: str
    queue_id: int
    is_diverted: bool = False


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The fields that a client sets itself in a message for a broker.

    properties: system properties. born_host: packed address and port. sys_flag: of the body, which
    is stored as it is.
    """

    unique_id: str
    born_timestamp: int
    born_host: tuple[bytes, int] = STORE_HOST
    sys_flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


class MessageEncoder:
    """Encodes messages for one store; safe to share between threads."""

    def __init__(self, config: StoreConfig, clock: Clock) -> None:
        self._clock = clock
        self.delays = DelayRouter(config)
        self._ids = UniqueIds(clock)
        self._config = config
        self._next_queue = random.randrange(1 << 16)

    @property
    def max_message_bytes(self) -> int:
        return self._config.max_message_bytes

    def encode_rows(
        self,
        batch: pa.RecordBatch,
        columns: SendColumns,
        topic: str | None,
        first_queue: int,
        route_to: Callable[[str], AppendRoute],
        max_bytes: int = ENCODE_BYTES,
    ) -> Iterator[EncodedBatch]:
        """Return an iterator over the rows of a checked batch as records; `topic` overrides the
        column.

        About `max_bytes` are encoded at a time. Delayed rows become records for the system topics.
        The routes of all topics are determined before the iterator is returned. Raises MessageError
        with the row number, and the errors of `route_to`.
        """
        parts = [(route_to(name), rows) for name, rows in by_topic(batch, topic)]

        def encoded() -> Iterator[EncodedBatch]:
            for to, rows in parts:
                part = columns if rows is None else columns.take(rows)
                try:
                    yield from self._encode_columns(part, to, first_queue, max_bytes)
                except MessageError as error:
                    raise name_row(error, rows) from None

        return encoded()

    def _encode_columns(
        self, columns: SendColumns, route_to: AppendRoute, first_queue: int, max_bytes: int
    ) -> Iterator[EncodedBatch]:
        """Yield the rows as records for one topic, and for the system topics."""
        queue_ids = route(columns, route_to.topic, route_to.queues, first_queue)
        now = self._clock()
        for routed in self.delays.split(columns, route_to.topic, queue_ids, now):
            order = order_by_queue(routed.queue_ids)
            ordered = routed if order is None else routed.take(order)
            yield from self._encode_routed(ordered, now, max_bytes)

    def _encode_routed(
        self, routed: RoutedRows, now: int, max_bytes: int
    ) -> Iterator[EncodedBatch]:
        ids = self._ids.column(len(routed.columns))
        to = routed.topic, routed.queue_ids, ids, now
        delays, dues = routed.delays, routed.dues
        try:
            yield from map(
                self._with_room,
                encode_batch(routed.columns, *to, delays=delays, dues=dues, max_bytes=max_bytes),
            )
        except MessageError as error:
            raise name_row(error, None if routed.rows is None else pa.array(routed.rows)) from None

    def encode_message(
        self, message: Message, route_to: AppendRoute, origin: Origin | None = None
    ) -> EncodedMessage:
        """Return a message as a record, of a system topic if it is delayed. Raises MessageError."""
        check_message(message, self.max_message_bytes)
        queue_id = self.queue_of(message, route_to)
        to = self.delays.destination(message, route_to.topic, queue_id, self._clock())
        record, unique_id = self._encode(message, to, origin)
        return EncodedMessage(record, unique_id, queue_id, to.topic != route_to.topic)

    def encode_to(
        self, message: Message, to: Destination, origin: Origin | None = None
    ) -> EncodedBatch:
        """Return one message as a record for the queue of `to`. Raises MessageError."""
        check_message(message, self.max_message_bytes)
        return self._encode(message, to, origin)[0]

    def _encode(
        self, message: Message, to: Destination, origin: Origin | None
    ) -> tuple[EncodedBatch, str]:
        try:
            return self._record(message, to, origin)
        except UnicodeEncodeError as error:
            raise MessageError(
                f"the message contains a string that is not valid Unicode: {error}.",
                remedy="Use strings that UTF-8 can encode; put binary data into the body.",
            ) from error

    def _record(
        self, message: Message, to: Destination, origin: Origin | None
    ) -> tuple[EncodedBatch, str]:
        if origin is None:
            body, sys_flag = stored_body(message.body)
            origin = Origin(unique_id=self._ids.one(), born_timestamp=self._clock())
        else:
            body, sys_flag = message.body, origin.sys_flag
        unique_id, more = origin.unique_id, {**origin.properties, **to.properties}
        named = _all_properties(message, unique_id, more)
        properties = encode_properties(named)
        _check_separators(named, properties)
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise MessageError(
                f"the message has {len(properties)} bytes of properties;"
                f" the maximum is {MAX_PROPERTIES_BYTES}.",
                remedy="Move long values into the body.",
                code="PROPERTIES_SIZE_EXCEEDED",
            )
        record = encode_record(
            topic=to.topic,
            queue_id=to.queue_id,
            body=body,
            properties=properties,
            born_timestamp=origin.born_timestamp,
            flag=message.flag,
            sys_flag=sys_flag,
            born_host=origin.born_host,
        )
        keys = keys_of_message(to.topic, unique_id, keys_of(message))
        encoded = batch_of_records(to.topic, to.queue_id, [record], message.tags or "", keys)
        encoded = replace(encoded, born_v6=len(origin.born_host[0]) == V6_BYTES)
        return self._with_room(to.schedule(encoded)), unique_id

    def _with_room(self, batch: EncodedBatch) -> EncodedBatch:
        """Return the records with room for a checksum of the whole record, if it is enabled."""
        config = self._config
        return with_crc_room(batch, config.log_file_bytes) if config.property_crc else batch

    def queue_of(self, message: Message, route_to: AppendRoute) -> int:
        """Return the queue id for a checked message. Raises MessageError."""
        if message.queue_id is not None:
            if not 0 <= message.queue_id < route_to.queues:
                raise MessageError(
                    f"the message names queue {message.queue_id}; topic {route_to.topic!r} has the"
                    f" write queues 0 to {route_to.queues - 1}.",
                    remedy="Use one of these, or omit the queue id to have a queue selected.",
                    code="QUEUE_NOT_FOUND",
                )
            return message.queue_id
        if message.sharding_key:
            return queue_for_key(message.sharding_key, route_to.queues)
        self._next_queue += 1
        return self._next_queue % route_to.queues


def name_row(error: MessageError, rows: pa.Array | None) -> MessageError:
    """Return the error with the row's number in the batch instead of the number in a part."""
    if rows is None:
        return error
    word, number, *rest = error.message.split(" ")
    row = rows[int(number)].as_py()
    return MessageError(" ".join((word, str(row), *rest)), remedy=error.remedy, code=error.code)


def keys_of(message: Message) -> Sequence[str]:
    """Return the keys; a plain string is a single key, as in a batch."""
    return [message.keys] if isinstance(message.keys, str) else message.keys


def check_message(message: Message, max_body_bytes: int) -> None:
    """Raise MessageError unless the message can be stored, except for its topic and queue."""
    check_message_kinds(message)
    if len(message.body) > max_body_bytes:
        raise MessageError(
            f"the body has {len(message.body)} bytes; the maximum is {max_body_bytes}.",
            remedy="Split it, or store it elsewhere and send its address.",
            code="BODY_TOO_LARGE",
        )
    named = {"tags": message.tags, "sharding key": message.sharding_key}
    reason = find_illegal_property(message.properties) or find_illegal_property(
        {name: value for name, value in named.items() if value}
    )
    if not isinstance(message.keys, str) and "" in message.keys:
        reason = f"there is an empty string among its keys {list(message.keys)}"
    if any(set(key) & {" ", "\x01", "\x02"} for key in keys_of(message)):
        reason = f"a key of {list(keys_of(message))} contains a space, \\x01 or \\x02"
    if not -(2**31) <= message.flag < 2**31:
        reason = f"flag {message.flag} does not fit in 32 bits"
    if reason:
        raise MessageError(f"{reason}.", remedy="Change or remove it.")
    _check_delay(message)


def _check_delay(message: Message) -> None:
    level, due = message.delay_level, message.deliver_at_ms
    if not isinstance(level, Integral) or not 0 <= level < 2**31:
        raise MessageError(
            f"the delay level is {level}; the first level is 1.",
            remedy="Use a level, or 0 for no delay.",
        )
    if due is not None and not isinstance(due, Integral):
        raise MessageError(f"deliver_at_ms is {due!r}.", remedy="Use whole epoch milliseconds.")
    if level and due is not None:
        raise MessageError(
            "the message has both delay_level and deliver_at_ms.",
            remedy="Set only one of them.",
            code="DELAY_TWICE",
        )


def _all_properties(message: Message, unique_id: str, more: Mapping[str, str]) -> dict[str, str]:
    own = {
        UNIQ_KEY: unique_id,
        KEYS: " ".join(keys_of(message)),
        TAGS: message.tags,
        SHARDING_KEY: message.sharding_key,
    }
    given = {name: value for name, value in own.items() if value}
    return given | dict(message.properties) | dict(more)


def _check_separators(named: Mapping[str, str], block: bytes) -> None:
    """Raise MessageError if a name or value contains a separator, and so adds other properties."""
    if block.count(NAME_END) == block.count(VALUE_END) == len(named):
        return
    name = next(name for name in named if {"\x01", "\x02"} & {*name, *named[name]})
    raise MessageError(
        f"the property {name!r} contains \\x01 or \\x02, the separators of the format.",
        remedy="Change or remove it.",
    )


def by_topic(batch: pa.RecordBatch, topic: str | None) -> list[tuple[str, pa.Array | None]]:
    """Return each topic with its rows, None for all rows."""
    if topic is not None:
        return [(topic, None)]
    if "topic" not in batch.schema.names:
        raise TopicNotFoundError(
            "no topic is named.",
            remedy="Name a topic for the batch, or add a `topic` column.",
            code="TOPIC_MISSING",
        )
    column = batch.column("topic")
    missing = pc.index(column.is_null(), True).as_py()
    if missing >= 0:
        raise MessageError(
            f"row {missing} has a null topic.",
            remedy="Name a topic in each row, or one topic for all rows.",
            code="TOPIC_MISSING",
        )
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for code, name in enumerate(names):
        _check_name_of_row(name, encoded.indices, code)
    if len(names) == 1:
        return [(names[0], None)]
    return [
        (name, pc.indices_nonzero(pc.equal(encoded.indices, code)))
        for code, name in enumerate(names)
    ]


def _check_name_of_row(name: str, codes: pa.Int32Array, code: int) -> None:
    """Raise TopicNameError, with the topic's first row, if its name is illegal."""
    try:
        check_topic_name(name)
    except TopicNameError as error:
        row = pc.index(codes, code).as_py()
        raise TopicNameError(f"row {row}: {error.message}", remedy=error.remedy) from None


def route(columns: SendColumns, topic: str, queues: int, first_queue: int) -> QueueIds:
    """Return each row's queue id. Raises MessageError (QUEUE_NOT_FOUND) for an invalid queue id."""
    count = len(columns)
    chosen = np.full(count, -1, np.int32)
    if columns.sharding_key is not None:
        has_key = columns.sharding_key.is_valid().to_numpy(zero_copy_only=False)
        chosen[has_key] = queues_for_keys(columns.sharding_key, queues)[has_key]
    if columns.queue_id is not None:
        given = columns.queue_id.is_valid().to_numpy(zero_copy_only=False)
        ids = pc.fill_null(columns.queue_id, 0).to_numpy()
        _check_ids(ids, topic, queues)
        chosen[given] = ids[given]
    free = np.flatnonzero(chosen < 0)
    if len(free):
        steps = np.arange(len(free), dtype=np.int64) * min(queues, len(free)) // len(free)
        chosen[free] = (first_queue + steps) % queues
    return chosen


def order_by_queue(queue_ids: QueueIds) -> pa.Array | None:
    """Return the order that groups the rows by queue; None if they are already grouped."""
    runs = np.count_nonzero(np.diff(queue_ids)) + 1
    if runs <= len(np.unique(queue_ids)):
        return None
    return pa.array(np.argsort(queue_ids, kind="stable"))


def _check_ids(ids: npt.NDArray[np.int64], topic: str, queues: int) -> None:
    bad = (ids < 0) | (ids >= queues)
    if bad.any():
        row = int(np.argmax(bad))
        raise MessageError(
            f"row {row} names queue {ids[row]}; topic {topic!r} has the write queues 0 to"
            f" {queues - 1}.",
            remedy="Use one of these, or null to have a queue selected.",
            code="QUEUE_NOT_FOUND",
        )


class UniqueIds:
    """Generates UNIQ_KEYs, the message ids that producers assign.

    Address (4), process id (u16), class-loader hash (i32), milliseconds since the start of the
    month (i32) and a counter (u16), 32 hex characters: `MessageClientIDSetter`. Here the hash is
    random per generator, and milliseconds and counter are one 48-bit number that only increases, so
    that the ids of one generator never repeat, even if more than 65,536 are generated per
    millisecond. Safe to share between threads, not between processes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0
        prefix = _local_address() + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(4)
        self._prefix = np.frombuffer(prefix, np.uint8)

    def column(self, count: int) -> pa.StringArray:
        first = self._reserve(count)
        rows = np.empty((count, 16), np.uint8)
        rows[:, :10] = self._prefix
        numbers = np.arange(first, first + count, dtype=">u8")
        rows[:, 10:] = numbers.view(np.uint8).reshape(count, 8)[:, 2:]
        return hex_column(rows)

    def one(self) -> str:
        number = self._reserve(1)
        return (self._prefix.tobytes() + number.to_bytes(6, "big")).hex().upper()

    def _reserve(self, count: int) -> int:
        with self._lock:
            first = max(self._next, (self._clock() % _MONTH_MS) << 16)
            # At 2⁴⁸, the number would need a seventh byte: restart at 0.
            self._next = first + count if first + count < 1 << 48 else 0
            return first if first + count < 1 << 48 else 0


def _local_address() -> bytes:
    try:
        return socket.inet_aton(socket.gethostbyname(socket.gethostname()))
    except OSError:
        return bytes((127, 0, 0, 1))
