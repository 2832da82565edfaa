"""Converts stored messages for clients.

The body is always uncompressed, and its digest is upper-case MD5, the only form that all clients
check in the same way.
"""

import hashlib
from typing import Any

from pyrocket.formats.fastjson import parse_java_long
from pyrocket.formats.properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    RESERVED_PROPERTIES,
    SHARDING_KEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_CONTEXT,
    TRAN_MSG,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from pyrocket.formats.record import SYS_TRANSACTION_MASK
from pyrocket.server.messaging.interface import new, number, put_ms
from pyrocket.values.message import StoredMessage

RESERVED = RESERVED_PROPERTIES | {DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID}
"""The properties that are not the sender's own."""


def message_of(stored: StoredMessage, topic: Any) -> Any:
    """Return a message; `topic` is the resource in the client's request."""
    message = new("Message", topic=topic, body=stored.body)
    message.user_properties.update(_user_properties(stored))
    _fill(message.system_properties, stored)
    return message


def _user_properties(stored: StoredMessage) -> dict[str, str]:
    """Return the sender's properties, and two system properties that clients expect among them."""
    own = stored.properties
    properties = {name: value for name, value in own.items() if name not in RESERVED}
    if SHARDING_KEY in own:
        properties[SHARDING_KEY] = own[SHARDING_KEY]
    if _is_transactional(stored):
        properties[TRANSACTION_ID] = own.get(UNIQ_KEY, "")
    return properties


def _fill(system: Any, stored: StoredMessage) -> None:
    own = stored.properties
    if stored.tags is not None:
        system.tag = stored.tags
    system.keys.extend(stored.keys)
    system.message_id = stored.msg_id
    digest = hashlib.md5(stored.body, usedforsecurity=False).hexdigest().upper()
    system.body_digest.type, system.body_digest.checksum = number("DigestType", "MD5"), digest
    system.body_encoding = number("Encoding", "IDENTITY")
    system.message_type = number("MessageType", _type_of(stored))
    put_ms(system.born_timestamp, stored.born_timestamp)
    put_ms(system.store_timestamp, stored.store_timestamp)
    system.born_host, system.store_host = stored.born_host, stored.store_host
    system.queue_id, system.queue_offset = max(stored.queue_id, 0), stored.queue_offset
    due = parse_java_long(own.get(TIMER_OUT_MS) or own.get(TIMER_DELIVER_MS))
    if due is not None and due >= 0:
        put_ms(system.delivery_timestamp, due)
    if SHARDING_KEY in own:
        system.message_group = own[SHARDING_KEY]
    if TRACE_CONTEXT in own:
        system.trace_context = own[TRACE_CONTEXT]
    if DLQ_ORIGIN_TOPIC in own:
        system.dead_letter_queue.topic = own[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = own.get(DLQ_ORIGIN_MESSAGE_ID, "")


def _type_of(stored: StoredMessage) -> str:
    if _is_transactional(stored):
        return "TRANSACTION"
    if {DELAY, TIMER_DELIVER_MS} & stored.properties.keys():
        return "DELAY"
    return "FIFO" if SHARDING_KEY in stored.properties else "NORMAL"


def _is_transactional(stored: StoredMessage) -> bool:
    return bool(stored.sys_flag & SYS_TRANSACTION_MASK) or TRAN_MSG in stored.properties
