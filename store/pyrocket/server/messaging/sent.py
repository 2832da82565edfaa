"""Checks the messages of SendMessage with RocketMQ's limits and codes, and converts them.

Source: `GrpcValidator`, `SendMessageActivity` of RocketMQ's proxy.
"""

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyrocket.broker.sends import Sent
from pyrocket.engine.message_encoder import Origin
from pyrocket.formats.compression import COMPRESSED_FLAGS, Inflation
from pyrocket.formats.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    RESERVED_PROPERTIES,
    TRACE_CONTEXT,
)
from pyrocket.formats.record import Host
from pyrocket.server.messaging.caller import check_id, parse_host
from pyrocket.server.messaging.codes import RefusedError
from pyrocket.server.messaging.interface import ms_of, name_of
from pyrocket.values.message import Message

MAX_PROPERTIES = 128
MAX_PROPERTY_BYTES = 16_384
MAX_GROUP_BYTES = 63
MAX_DELAY_MS = 86_400_000
MAX_RECOVERY_S = 3600

RESERVED = RESERVED_PROPERTIES | {DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_UNSERVED = ("LITE", "PRIORITY")
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class SendLimits:
    """The client's address, the time of the request, and the limits of its bodies."""

    host: Host
    now_ms: int
    max_body_bytes: int
    inflation: Inflation


def sent_of(message: Any, topic: str, accepted: tuple[str, ...], sender: SendLimits) -> Sent:
    """Return a checked message for `Sends`. Raises RefusedError.

    accepted: The message types that the topic accepts.
    """
    system = message.system_properties
    _check_served(system)
    kind = _type_of(system, sender.now_ms)
    body, sys_flag = _body_of(message, sender)
    properties = _properties_of(message)
    keys = _keys_of(system)
    _check_tag(system.tag)
    _check_total(properties, system)
    _check_text("ILLEGAL_MESSAGE_ID", "message id", system.message_id)
    check_id("message id", system.message_id, "ILLEGAL_MESSAGE_ID")
    if kind not in accepted:
        raise RefusedError(
            "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
            f"a message of type {kind} was sent to a topic for {', '.join(accepted)}.",
        )
    return Sent(
        Message(
            topic=topic,
            body=body,
            tags=system.tag or None,
            keys=keys,
            properties={name: value for name, value in properties.items() if value},
            sharding_key=_group_of(system),
            deliver_at_ms=_due_of(system, sender.now_ms),
        ),
        Origin(
            unique_id=system.message_id,
            born_timestamp=_born_of(system, sender.now_ms),
            born_host=parse_host(system.born_host) or sender.host,
            sys_flag=sys_flag,
            properties=_system_properties(system),
        ),
        is_half=kind == "TRANSACTION",
        immunity_s=_recovery_of(system),
    )


def _check_served(system: Any) -> None:
    name = name_of("MessageType", system.message_type)
    if name in _UNSERVED or system.HasField("lite_topic") or system.HasField("priority"):
        raise RefusedError("UNSUPPORTED", "the message types LITE and PRIORITY are not supported.")


def _type_of(system: Any, now_ms: int) -> str:
    """Return the type, derived from the fields of the message as in RocketMQ."""
    delayed, group = system.HasField("delivery_timestamp"), bool(system.message_group)
    if name_of("MessageType", system.message_type) == "TRANSACTION":
        if delayed or group:
            raise RefusedError(
                "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
                "a transactional message cannot have a message group or a delivery time.",
            )
        return "TRANSACTION"
    if delayed:
        return "DELAY"
    return "FIFO" if group else "NORMAL"


def _body_of(message: Any, sender: SendLimits) -> tuple[bytes, int]:
    """Return the body to store, and its sysFlag."""
    max_bytes = sender.max_body_bytes
    body, system = bytes(message.body), message.system_properties
    if not body:
        raise RefusedError("MESSAGE_BODY_EMPTY", "the body is empty.")
    if len(body) > max_bytes:
        raise RefusedError(
            "MESSAGE_BODY_TOO_LARGE",
            f"the body has {len(body)} bytes; the maximum is {max_bytes}.",
        )
    _check_digest(system.body_digest, body)
    if name_of("Encoding", system.body_encoding) != "GZIP":
        return body, 0
    # Clients label zlib data as GZIP. RocketMQ's consumers inflate only zlib.
    if body.startswith(_GZIP_MAGIC):
        return _gunzipped(body, max_bytes), 0
    sender.inflation.check(body)
    return body, COMPRESSED_FLAGS


def _gunzipped(body: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(body, max_bytes + 1)
    except zlib.error:
        plain = b""
    if len(plain) > max_bytes:
        raise RefusedError(
            "MESSAGE_BODY_TOO_LARGE", f"the body inflates to more than {max_bytes} bytes."
        )
    if not plain or not stream.eof:
        raise RefusedError("MESSAGE_CORRUPTED", "the compressed body cannot be inflated.")
    return plain


def _check_digest(digest: Any, body: bytes) -> None:
    """Check the digest of a body. Clients format the CRC-32 in different ways."""
    kind, given = name_of("DigestType", digest.type), digest.checksum.lower()
    crc = zlib.crc32(body)
    expected = {
        "MD5": {hashlib.md5(body, usedforsecurity=False).hexdigest()},
        "SHA1": {hashlib.sha1(body, usedforsecurity=False).hexdigest()},
        "CRC32": {f"{crc:08x}", f"{crc:x}", str(crc)},
    }
    if kind in expected and given not in expected[kind]:
        raise RefusedError("MESSAGE_CORRUPTED", f"the {kind} of the body is not {given}.")


def _properties_of(message: Any) -> Mapping[str, str]:
    properties = dict(message.user_properties)
    if len(properties) > MAX_PROPERTIES:
        raise RefusedError(
            "MESSAGE_PROPERTIES_TOO_LARGE",
            f"the message has {len(properties)} properties; the maximum is {MAX_PROPERTIES}.",
        )
    for name, value in properties.items():
        if not name or name in RESERVED or _CONTROL.search(name) or _CONTROL.search(value):
            raise RefusedError(
                "ILLEGAL_MESSAGE_PROPERTY_KEY",
                f"the property {name!r} is reserved, empty, or has control characters.",
            )
    return properties


def _check_total(properties: Mapping[str, str], system: Any) -> None:
    texts = (*properties, *properties.values(), *system.keys, system.tag, system.trace_context)
    total = sum(len(text.encode()) for text in texts)
    if total > MAX_PROPERTY_BYTES:
        raise RefusedError(
            "MESSAGE_PROPERTIES_TOO_LARGE",
            "properties, tag, keys and trace context have"
            f" {total} bytes; the maximum is {MAX_PROPERTY_BYTES}.",
        )


def _keys_of(system: Any) -> list[str]:
    """Return the keys. Records separate keys by blanks, so a key with blanks is split."""
    for key in system.keys:
        _check_text("ILLEGAL_MESSAGE_KEY", "key", key)
    return [part for key in system.keys for part in key.split(" ") if part]


def _check_tag(tag: str) -> None:
    if tag:
        _check_text("ILLEGAL_MESSAGE_TAG", "tag", tag)
    if "|" in tag:
        raise RefusedError("ILLEGAL_MESSAGE_TAG", f"the tag {tag!r} contains a |.")


def _check_text(code: str, what: str, text: str) -> None:
    if not text.strip() or _CONTROL.search(text):
        raise RefusedError(code, f"the {what} {text!r} is blank or has control characters.")


def _group_of(system: Any) -> str | None:
    group = str(system.message_group)
    if not group:
        return None
    _check_text("ILLEGAL_MESSAGE_GROUP", "message group", group)
    if len(group.encode()) > MAX_GROUP_BYTES:
        raise RefusedError(
            "ILLEGAL_MESSAGE_GROUP", f"the message group has more than {MAX_GROUP_BYTES} bytes."
        )
    return group


def _due_of(system: Any, now_ms: int) -> int | None:
    if not system.HasField("delivery_timestamp"):
        return None
    due_ms = ms_of(system.delivery_timestamp)
    if due_ms - now_ms > MAX_DELAY_MS:
        raise RefusedError("ILLEGAL_DELIVERY_TIME", "the delivery time is more than a day ahead.")
    return due_ms


def _born_of(system: Any, now_ms: int) -> int:
    born_ms = ms_of(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    return born_ms if born_ms > 0 else now_ms


def _recovery_of(system: Any) -> int | None:
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return None
    seconds = int(system.orphaned_transaction_recovery_duration.seconds)
    if not 0 <= seconds <= MAX_RECOVERY_S:
        raise RefusedError(
            "BAD_REQUEST", f"the time before a check must be at most {MAX_RECOVERY_S} s."
        )
    return seconds


def _system_properties(system: Any) -> dict[str, str]:
    trace = str(system.trace_context)
    return {TRACE_CONTEXT: trace} if trace and not _CONTROL.search(trace) else {}
