"""SendMessage, whose messages are checked with RocketMQ's limits and codes, and RecallMessage.

Source: `GrpcValidator`, `SendMessageActivity` of RocketMQ's proxy.
"""

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyrocket.base.loop_threads import PendingReply
from pyrocket.broker.broker import Broker
from pyrocket.broker.sends import Sent
from pyrocket.engine.message_encoder import Origin
from pyrocket.formats.compression import COMPRESSED_FLAGS, Inflation
from pyrocket.formats.properties import TRACE_CONTEXT
from pyrocket.formats.record import Host
from pyrocket.server.messaging.caller import Caller, check_id, parse_host
from pyrocket.server.messaging.codes import RefusedError, status, stored_status
from pyrocket.server.messaging.delivered import RESERVED
from pyrocket.server.messaging.interface import ms_of, name_of, new
from pyrocket.server.messaging.routes import RouteCalls
from pyrocket.server.messaging.sessions import Sessions
from pyrocket.values.message import Message, SendResult

MAX_PROPERTIES = 128
MAX_PROPERTY_BYTES = 16_384
MAX_GROUP_BYTES = 63
MAX_DELAY_MS = 86_400_000
MAX_RECOVERY_S = 3600

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
            born_timestamp=max(ms_of(system.born_timestamp), 0) or sender.now_ms,
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
            "MESSAGE_BODY_TOO_LARGE", f"the body has {len(body)} bytes; the maximum is {max_bytes}."
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


_HANDLE_FIELDS = 5


class SendCalls:
    """Implements the calls of producers."""

    def __init__(self, broker: Broker, routes: RouteCalls, sessions: Sessions) -> None:
        self._broker, self._store = broker, broker.store
        self._routes, self._sessions = routes, sessions

    def send_message(self, request: Any, caller: Caller) -> PendingReply:
        """Append the messages of one topic, all or none."""
        topic = self._topic(request, caller)
        config = self._store.config
        caller.admit("SendMessage", [topic], create=config.auto_create_topics)
        longest = config.max_message_bytes
        sender = SendLimits(caller.host, self._store.now(), longest, Inflation(longest))
        accepted = self._routes.accepted(topic)
        sent = [sent_of(message, topic, accepted, sender) for message in request.messages]
        stored = self._broker.sends.send(sent)
        if self._broker.traces is not None:
            self._broker.traces.sent(sent, stored, sender.now_ms)
        if any(message.is_half for message in sent):
            self._sessions.sends_to(caller.key, topic)
        return PendingReply(stored, lambda results: self._reply(sent, results, sender.now_ms))

    def _topic(self, request: Any, caller: Caller) -> str:
        if not request.messages:
            raise RefusedError("MESSAGE_CORRUPTED", "the request has no messages.")
        topics = {caller.topic(message.topic) for message in request.messages}
        if len(topics) > 1:
            raise RefusedError("MESSAGE_CORRUPTED", "the messages have different topics.")
        return topics.pop()

    def _reply(self, sent: Sequence[Sent], results: Sequence[SendResult], now_ms: int) -> Any:
        entries = [
            self._entry(item, stored, now_ms) for item, stored in zip(sent, results, strict=True)
        ]
        return new("SendMessageResponse", status=stored_status(results[0].status), entries=entries)

    def _entry(self, sent: Sent, stored: SendResult, now_ms: int) -> Any:
        unique_id, due_ms = sent.origin.unique_id, sent.message.deliver_at_ms
        delayed = due_ms is not None and due_ms > now_ms
        return new(
            "SendResultEntry",
            status=stored_status(stored.status),
            message_id=unique_id,
            transaction_id=unique_id,
            offset=stored.queue_offset,
            recall_handle=self._handle(sent.message.topic, due_ms, unique_id) if delayed else "",
        )

    def _handle(self, topic: str, due_ms: int | None, unique_id: str) -> str:
        """Return a recall handle in RocketMQ's format; see `RecallMessageHandle`."""
        text = f"v1 {topic} {self._store.broker_name} {due_ms} {unique_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    def recall_message(self, request: Any, caller: Caller) -> Any:
        """Cancel a delayed message that has not been delivered yet."""
        topic = caller.topic(request.topic)
        caller.admit("RecallMessage", [topic])
        named, unique_id = _parse_handle(request.recall_handle)
        if named != topic or not self._store.timers.cancel(topic, unique_id):
            # Not MESSAGE_NOT_FOUND, which clients treat as success.
            raise RefusedError("NOT_FOUND", f"the message {unique_id} is not pending.")
        return new("RecallMessageResponse", status=status("OK"), message_id=unique_id)


def _parse_handle(handle: str) -> tuple[str, str]:
    """Return the topic and the message id in a recall handle. Raises RefusedError."""
    try:
        parts = base64.urlsafe_b64decode(handle.encode()).decode().split(" ", _HANDLE_FIELDS - 1)
    except (binascii.Error, UnicodeError):
        parts = []
    if len(parts) != _HANDLE_FIELDS or parts[0] != "v1":
        raise RefusedError("BAD_REQUEST", "the recall handle is malformed.")
    return parts[1], parts[4]
