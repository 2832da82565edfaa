"""`Tracer`: writes RocketMQ's message trace for one client.

Any thread adds records to a `TraceQueue`. A task in the client's event loop sends them several
times a second, many records in each message of the trace topic. Records that cannot be sent are
dropped and counted.

Source: `AsyncTraceDispatcher`, `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl`,
`EndTransactionTraceHookImpl`.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from random import Random

from pyrocket.base.clock import system_clock
from pyrocket.broker.trace_queue import MAX_PENDING, TraceQueue
from pyrocket.client.config import ProducerConfig
from pyrocket.client.core.sending import Sending
from pyrocket.client.instance import Instance
from pyrocket.client.outgoing import outgoing
from pyrocket.client.results import ConsumeResult
from pyrocket.engine.message_encoder import UniqueIds
from pyrocket.errors import TopicNotFoundError
from pyrocket.formats import trace
from pyrocket.values.message import Message, OutgoingMessage, SendResult, SendStatus, StoredMessage
from pyrocket.values.transactions import LocalTransactionState, Undecided

_GROUP = "_INNER_TRACE_PRODUCER"
_INTERVAL_S = 0.2

_log = logging.getLogger(__name__)


class Tracer:
    """The message trace of one client. Safe to share between threads."""

    def __init__(self, topic: str, group: str, instance: Instance) -> None:
        self._topic, self._group, self._instance = topic, group, instance
        self._ids, self._queue = UniqueIds(system_clock), TraceQueue(topic, group, MAX_PENDING)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Check the topic, and begin to send. Raises TopicNotFoundError, TransportError."""
        instance, config = self._instance, ProducerConfig(group=_GROUP)
        try:
            await instance.routes.get(self._topic)
        except TopicNotFoundError:
            await instance.routes.created(self._topic)
        random = Random(secrets.randbits(64))
        self._sending = Sending(config, instance.transport, instance.routes, random)
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Send the records that were added."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            await self._send_all()

    def sent(
        self, messages: Sequence[OutgoingMessage], began_ms: int, results: Sequence[SendResult] = ()
    ) -> None:
        """Trace a send; without results it has failed."""
        cost_ms = system_clock() - began_ms
        for index, message in enumerate(messages):
            result = results[index] if results else None
            is_delayed = message.message.deliver_at_ms is not None or message.message.delay_level
            kind = trace.DELAYED if is_delayed else trace.NORMAL
            offset_id = result.offset_msg_id if result else ""
            is_stored = result is not None and result.status is SendStatus.SEND_OK
            self._add_pub(message, began_ms, cost_ms, kind, offset_id, is_stored)

    def half_sent(self, one: OutgoingMessage, began_ms: int, undecided: Undecided | None) -> None:
        """Trace the send of a half message; without `undecided` it has failed."""
        is_stored = undecided is not None and undecided.status is SendStatus.SEND_OK
        self._add_pub(one, began_ms, system_clock() - began_ms, trace.HALF, "", is_stored)

    def ended(self, undecided: Undecided, state: LocalTransactionState, from_check: bool) -> None:
        """Trace the end of a transaction."""
        message, number = undecided.message, undecided.half.transaction_id
        self._queue.put(
            message.topic,
            trace.EndTransaction(
                timestamp=system_clock(),
                region=trace.DEFAULT_REGION,
                group=self._group,
                topic=message.topic,
                message_id=number,
                tags=message.tags,
                keys=" ".join(message.keys) or None,
                store_host=undecided.broker,
                message_type=trace.COMMIT_OR_ROLLBACK,
                transaction_id=number,
                state=state.value,
                from_check=from_check,
            ),
        )

    def consuming(self, messages: Sequence[StoredMessage]) -> str:
        """Trace a call of the listener; return its request id, for `consumed`."""
        now, request = system_clock(), self._ids.one()
        for message in messages:
            keys, times = " ".join(message.keys) or None, message.reconsume_times
            self._queue.put(
                message.topic,
                trace.SubBefore(
                    now, trace.DEFAULT_REGION, self._group, request, message.msg_id, times, keys
                ),
            )
        return request

    def consumed(
        self, request: str, messages: Sequence[StoredMessage], began_ms: int, result: object
    ) -> None:
        """Trace the result of the listener, which may be an exception."""
        now = system_clock()
        done = result.consumed(len(messages)) if isinstance(result, ConsumeResult) else 0
        cost_ms = (now - began_ms) // max(len(messages), 1)
        code = _code_of(result)
        for index, message in enumerate(messages):
            is_done = index < done
            returned, keys = trace.CONSUMED if is_done else code, " ".join(message.keys) or None
            self._queue.put(
                message.topic,
                trace.SubAfter(
                    request, message.msg_id, cost_ms, is_done, keys, returned, now, self._group
                ),
            )

    def _add_pub(
        self,
        one: OutgoingMessage,
        began_ms: int,
        cost_ms: int,
        kind: int,
        offset_id: str,
        is_stored: bool,
    ) -> None:
        message = one.message
        keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
        self._queue.put(
            message.topic,
            trace.Pub(
                timestamp=began_ms,
                region=trace.DEFAULT_REGION,
                group=self._group,
                topic=message.topic,
                message_id=one.unique_id,
                tags=message.tags,
                keys=keys or None,
                store_host="",
                body_length=len(message.body),
                cost_ms=cost_ms,
                message_type=kind,
                offset_message_id=offset_id,
                success=is_stored,
            ),
        )

    @property
    def dropped(self) -> int:
        """The number of records that were not stored."""
        return self._queue.dropped

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self._send_all()

    async def _send_all(self) -> None:
        """Send the records that were added so far."""
        for pending in self._queue.take():
            message = Message(topic=self._topic, body=pending.body, keys=pending.keys)
            try:
                await self._sending.send([outgoing(message, self._ids.one(), system_clock())])
            except Exception as error:
                _log.info("message traces were not sent: %s", error)
                self._queue.drop(pending.records)


def _code_of(result: object) -> int:
    """Return the number of RocketMQ's `ConsumeReturnType` for messages that were not consumed."""
    if isinstance(result, BaseException):
        return trace.EXCEPTION_RAISED
    return trace.NOTHING_RETURNED if result is None else trace.CONSUMPTION_FAILED
