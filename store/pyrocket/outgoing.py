"""Messages on their way into the log: checked, routed, encoded; nothing is written here."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyrocket.clock import Clock
from pyrocket.config import COMPRESS_BODY_FROM_BYTES, MAX_BODY_BYTES, MAX_PROPERTIES_BYTES
from pyrocket.errors import MessageError
from pyrocket.formats.compression import COMPRESSED_FLAGS, deflate
from pyrocket.formats.java_hash import java_hash, queue_for_key
from pyrocket.formats.message_keys import keys_of_message
from pyrocket.formats.properties import (
    KEYS,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    encode_properties,
    find_illegal_property,
)
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch, encode_batch
from pyrocket.formats.send_columns import SendColumns
from pyrocket.message import Message
from pyrocket.services.routing import order_by_queue, route
from pyrocket.services.unique_ids import UniqueIds


@dataclass(frozen=True)
class Route:
    """Where messages may go: the topic and its write queues."""

    topic: str
    queues: int


class Outgoing:
    """Encodes for one store; safe to share between threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ids = UniqueIds(clock)
        self._turn = random.randrange(1 << 16)

    def encode_columns(
        self, columns: SendColumns, route_to: Route, first_queue: int
    ) -> list[EncodedBatch]:
        """Return the rows as records of one topic. Raises MessageError naming the row."""
        queue_ids = route(columns, route_to.topic, route_to.queues, first_queue)
        ids = self._ids.column(len(columns))
        order = order_by_queue(queue_ids)
        if order is not None:
            columns, queue_ids = columns.take(order), queue_ids[order.to_numpy()]
        try:
            return list(encode_batch(columns, route_to.topic, queue_ids, ids, self._clock()))
        except MessageError as error:
            raise name_row(error, order) from None

    def encode_message(self, message: Message, route_to: Route) -> tuple[EncodedBatch, str]:
        """Return one message as a record, and its id. Raises MessageError."""
        try:
            return self._encode_message(message, route_to)
        except UnicodeEncodeError as error:
            raise MessageError(f"the message holds text that is no Unicode: {error}.") from error

    def _encode_message(self, message: Message, route_to: Route) -> tuple[EncodedBatch, str]:
        _check_message(message)
        unique_id = self._ids.one()
        properties = encode_properties(_all_properties(message, unique_id))
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise MessageError(
                f"the message has {len(properties)} bytes of properties;"
                f" {MAX_PROPERTIES_BYTES} is the most.",
                code="PROPERTIES_SIZE_EXCEEDED",
            )
        body, sys_flag = _stored_body(message.body)
        queue_id = self._queue_of(message, route_to)
        record = encode_record(
            topic=route_to.topic,
            queue_id=queue_id,
            queue_offset=0,
            physical_offset=0,
            body=body,
            properties=properties,
            born_timestamp=self._clock(),
            store_timestamp=0,
            flag=message.flag,
            sys_flag=sys_flag,
        )
        encoded = EncodedBatch(
            topic=route_to.topic,
            data=pa.py_buffer(bytearray(record)),
            bounds=np.array([0, len(record)]),
            queue_ids=np.array([queue_id], np.int32),
            tags_codes=np.array([java_hash(message.tags or "")], np.int64),
            keys=keys_of_message(route_to.topic, unique_id, _keys_of(message)),
        )
        return encoded, unique_id

    def _queue_of(self, message: Message, route_to: Route) -> int:
        if message.queue_id is not None:
            if not 0 <= message.queue_id < route_to.queues:
                raise MessageError(
                    f"the message wants queue {message.queue_id}; topic {route_to.topic!r} has the"
                    f" write queues 0 to {route_to.queues - 1}.",
                    code="QUEUE_NOT_FOUND",
                )
            return message.queue_id
        if message.sharding_key:
            return queue_for_key(message.sharding_key, route_to.queues)
        self._turn += 1
        return self._turn % route_to.queues


def name_row(error: MessageError, rows: pa.Array | None) -> MessageError:
    """Return an error about a row with that row's place in the batch it was taken from."""
    if rows is None:
        return error
    word, number, *rest = error.message.split(" ")
    row = rows[int(number)].as_py()
    return MessageError(" ".join((word, str(row), *rest)), remedy=error.remedy, code=error.code)


def _keys_of(message: Message) -> Sequence[str]:
    """Return the keys; a plain string is one key, as in a batch."""
    return [message.keys] if isinstance(message.keys, str) else message.keys


def _stored_body(body: bytes) -> tuple[bytes, int]:
    """Return the body as stored and its sysFlag: deflated if that makes it shorter."""
    deflated = deflate(body) if len(body) >= COMPRESS_BODY_FROM_BYTES else body
    return (deflated, COMPRESSED_FLAGS) if len(deflated) < len(body) else (body, 0)


def _check_message(message: Message) -> None:
    if not isinstance(message.body, bytes):
        raise MessageError(
            f"the body is {type(message.body).__name__}.", remedy="Encode it: a body is bytes."
        )
    if len(message.body) > MAX_BODY_BYTES:
        raise MessageError(
            f"the body has {len(message.body)} bytes; {MAX_BODY_BYTES} is the most.",
            code="BODY_TOO_LARGE",
        )
    named = {"tags": message.tags, "sharding key": message.sharding_key}
    reason = find_illegal_property(message.properties) or find_illegal_property(
        {name: value for name, value in named.items() if value}
    )
    if any(set(key) & {" ", "\x01", "\x02"} for key in _keys_of(message)):
        reason = f"a key of {list(_keys_of(message))} holds a space, \\x01 or \\x02"
    if not -(2**31) <= message.flag < 2**31:
        reason = f"flag {message.flag} does not fit in 32 bits"
    if reason:
        raise MessageError(f"{reason}.")


def _all_properties(message: Message, unique_id: str) -> dict[str, str]:
    own = {
        UNIQ_KEY: unique_id,
        KEYS: " ".join(_keys_of(message)),
        TAGS: message.tags,
        SHARDING_KEY: message.sharding_key,
    }
    return {name: value for name, value in own.items() if value} | dict(message.properties)
