"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from collections.abc import Iterable
from itertools import compress
from typing import Any

from pyrocket.base.loop_threads import PendingReply
from pyrocket.broker.broker import Broker
from pyrocket.broker.pop.values import Acked, Stored
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, status, stored_status
from pyrocket.server.messaging.interface import ms_of, new
from pyrocket.server.messaging.receive_calls import check_invisible
from pyrocket.server.messaging.sessions import Sessions
from pyrocket.server.messaging.telemetry import NODE
from pyrocket.values.admin import GroupConfig
from pyrocket.values.message import SendStatus

_INVALID = (
    "the receipt handle is invalid: the message is visible again, or belongs to another group."
)
_SECOND_MS = 1000


class ReceiptCalls:
    """Changes messages in flight."""

    def __init__(self, broker: Broker, sessions: Sessions) -> None:
        self._broker, self._store = broker, broker.store
        self._sessions = sessions

    def ack_message(self, request: Any, caller: Caller) -> PendingReply:
        """Ack messages, and return a status for each."""
        topic, group = _topic_and_group(request, caller, "AckMessage")
        handles = [entry.receipt_handle for entry in request.entries]
        if not handles:
            raise RefusedError("BAD_REQUEST", "the request has no entries.")
        acked = self._broker.pop.ack(group, topic, handles)
        self._done(group, topic, handles, acked)
        valid = compress(request.entries, acked.valid)
        self._trace(caller, group, topic, valid, acked.stored, success=True)
        return PendingReply(acked.stored, lambda stored: _acked(request, acked, stored.status))

    def forward_message_to_dead_letter_queue(self, request: Any, caller: Caller) -> PendingReply:
        """Move a message to the dead-letter topic of its group."""
        topic, group = _topic_and_group(request, caller, "ForwardMessageToDeadLetterQueue")
        handle = request.receipt_handle
        acked = self._broker.pop.forward_to_dlq(group, topic, handle)
        if not acked.valid[0]:
            raise RefusedError("INVALID_RECEIPT_HANDLE", _INVALID)
        self._done(group, topic, [handle], acked)
        self._trace(caller, group, topic, [request], acked.stored, success=False)
        kind = "ForwardMessageToDeadLetterQueueResponse"
        return PendingReply(
            acked.stored, lambda stored: new(kind, status=stored_status(stored.status))
        )

    def change_invisible_duration(self, request: Any, caller: Caller) -> PendingReply:
        """Set the time at which a message becomes visible, and return its new handle."""
        topic, group = _topic_and_group(request, caller, "ChangeInvisibleDuration")
        handle, ms = request.receipt_handle, ms_of(request.invisible_duration)
        check_invisible(ms)
        ms = self._delay(group, handle, ms, caller)
        changed = self._broker.pop.change_invisible(group, topic, handle, ms)
        self._broker.polls.renewals.remove([handle])
        if changed.handle is None:
            raise RefusedError("INVALID_RECEIPT_HANDLE", _INVALID)
        self._broker.polls.visible_in(group, topic, ms)
        self._trace(caller, group, topic, [request], changed.stored, success=False)
        kind = "ChangeInvisibleDurationResponse"
        return PendingReply(
            changed.stored,
            lambda stored: new(
                kind, status=stored_status(stored.status), receipt_handle=changed.handle
            ),
        )

    def _delay(self, group: str, handle: str, ms: int, caller: Caller) -> int:
        """Return `ms`, or the group's delay if a Node.js client has sent seconds instead of ms."""
        attempt = self._broker.polls.renewals.attempt(handle)
        session = self._sessions.find(caller.key)
        if ms >= _SECOND_MS or not attempt or session is None or session.language != NODE:
            return ms
        groups = self._store.groups.all()
        return groups.get(group, GroupConfig(group)).backoff.delay_ms(attempt - 1)

    def _trace(
        self,
        caller: Caller,
        group: str,
        topic: str,
        ended: Iterable[Any],
        stored: Stored,
        *,
        success: bool,
    ) -> None:
        """Trace the ends of deliveries. Each of `ended` has a message id and a valid handle."""
        if self._broker.traces is not None:
            receipts = [(entry.message_id, entry.receipt_handle) for entry in ended]
            self._broker.traces.ended(caller.host, group, topic, receipts, stored, success=success)

    def _done(self, group: str, topic: str, handles: list[str], acked: Acked) -> None:
        self._broker.polls.renewals.remove(handles)
        if acked.wakes:
            polls = self._broker.polls
            acked.stored.add_done_callback(lambda _: polls.visible_in(group, topic, 0))


def _acked(request: Any, acked: Acked, stored: SendStatus) -> Any:
    entries = [
        new(
            "AckMessageResultEntry",
            message_id=entry.message_id,
            receipt_handle=entry.receipt_handle,
            status=stored_status(stored) if valid else status("INVALID_RECEIPT_HANDLE", _INVALID),
        )
        for entry, valid in zip(request.entries, acked.valid, strict=True)
    ]
    common = entries[0].status
    if len({*acked.valid}) > 1:
        common = status("MULTIPLE_RESULTS")
    return new("AckMessageResponse", status=common, entries=entries)


def _topic_and_group(request: Any, caller: Caller, call: str) -> tuple[str, str]:
    topic, group = caller.topic(request.topic), caller.group(request.group)
    caller.admit(call, [topic], [group])
    return topic, group
