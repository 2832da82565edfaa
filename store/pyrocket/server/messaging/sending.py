"""SendMessage and RecallMessage."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from pyrocket.base.loop_threads import PendingReply
from pyrocket.broker.broker import Broker
from pyrocket.broker.sends import Sent
from pyrocket.formats.compression import Inflation
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, status, stored_status
from pyrocket.server.messaging.interface import new
from pyrocket.server.messaging.routes import RouteCalls
from pyrocket.server.messaging.sent import SendLimits, sent_of
from pyrocket.server.messaging.sessions import Sessions
from pyrocket.values.message import SendResult

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
        if any(one.is_half for one in sent):
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
            self._entry(one, stored, now_ms) for one, stored in zip(sent, results, strict=True)
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
