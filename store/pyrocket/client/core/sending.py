"""The core of a producer: attempts to send messages, within a time-out.

Source: `DefaultMQProducerImpl.sendDefaultImpl`, `sendSelectImpl`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from pyrocket.client.config import ProducerConfig
from pyrocket.client.core.queue_choice import QueueChoice, select
from pyrocket.client.core.routes import Routes
from pyrocket.client.selection import Selector
from pyrocket.client.transport import ClientTransport
from pyrocket.errors import FailedSend, PyrocketError, TopicNotFoundError, TransportError
from pyrocket.values.message import Message, MessageQueue, OutgoingMessage, SendResult
from pyrocket.values.transactions import Undecided

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

Attempt = Callable[[MessageQueue], Awaitable[_T]]


@dataclass(frozen=True)
class SendTarget:
    """Where the caller of a send wants the messages: a queue, a selector, or neither.

    A message with a target is sent once, without a retry at another queue.
    """

    queue: MessageQueue | None = None
    selector: Selector | None = None
    argument: Any = None


ANYWHERE = SendTarget()


class Sending:
    """Sends the messages of one producer. Used by one event loop."""

    def __init__(
        self, config: ProducerConfig, transport: ClientTransport, routes: Routes, random: Random
    ) -> None:
        """`random` decides where the round robin of each topic starts."""
        self._config, self._transport, self._routes = config, transport, routes
        self._choice = QueueChoice(config, random)

    async def send(
        self,
        messages: Sequence[OutgoingMessage],
        target: SendTarget = ANYWHERE,
        *,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none; return their places.

        timeout_ms: For all attempts together; None for the producer's.

        Raises TopicNotFoundError, MessageError, InvalidInputError (NO_QUEUES, NOT_A_QUEUE), what
        the selector raises, and the error of the last attempt: TransportError (SEND_TIMEOUT if the
        time is over: the messages may have been stored), BrokerBusyError, StoreUnavailableError.
        """
        attempt = self._attempt(lambda queue: self._transport.send(queue, messages))
        return await self._within(timeout_ms, messages[0].message, target, attempt)

    async def send_half(
        self, message: OutgoingMessage, *, immunity_s: int | None = None
    ) -> Undecided:
        """Store a half message; see `ClientTransport.send_half`. Raises the errors of `send`."""
        group = self._config.group
        attempt = self._attempt(
            lambda queue: self._transport.send_half(group, queue, message, immunity_s)
        )
        return await self._within(None, message.message, ANYWHERE, attempt)

    def _attempt(self, call: Attempt[_T]) -> Attempt[_T]:
        """Return a call that records its latency."""

        async def attempt(queue: MessageQueue) -> _T:
            clock = asyncio.get_running_loop().time
            began = clock()
            try:
                result = await call(queue)
            except PyrocketError as error:
                if error.failed_send is FailedSend.UNKNOWN:
                    self._failed(queue, clock() - began, error)
                raise
            except asyncio.CancelledError:
                late = _timed_out(queue.topic, self._config.timeout_ms)
                self._failed(queue, clock() - began, late)
                raise
            self._choice.succeeded(queue, (clock() - began) * 1000)
            return result

        return attempt

    def _failed(self, queue: MessageQueue, seconds: float, error: PyrocketError) -> None:
        self._choice.failed(queue, seconds * 1000, error)
        self._routes.suspect(queue.topic)

    async def _within(
        self, timeout_ms: int | None, message: Message, target: SendTarget, attempt: Attempt[_T]
    ) -> _T:
        if timeout_ms is None:
            timeout_ms = self._config.timeout_ms
        sending = self._with_current_route(message, target, attempt)
        try:
            return await asyncio.wait_for(sending, timeout_ms / 1000)
        except asyncio.TimeoutError:
            raise _timed_out(message.topic, timeout_ms) from None

    async def _with_current_route(
        self, message: Message, target: SendTarget, attempt: Attempt[_T]
    ) -> _T:
        """Send by the known route; if an error shows that it is stale, by the current one."""
        queues = await self._queues(message.topic, fresh=False)
        try:
            return await self._attempts(queues, message, target, attempt)
        except PyrocketError as error:
            if error.failed_send is not FailedSend.STALE_ROUTE:
                raise
        queues = await self._queues(message.topic, fresh=True)
        return await self._attempts(queues, message, target, attempt)

    async def _attempts(
        self,
        queues: Sequence[MessageQueue],
        message: Message,
        target: SendTarget,
        attempt: Attempt[_T],
    ) -> _T:
        if target.queue is not None:
            return await attempt(target.queue)
        if target.selector is not None:
            return await attempt(select(target.selector, queues, message, target.argument))
        last_broker: str | None = None
        for left in reversed(range(1 if message.sharding_key else 1 + self._config.retries)):
            queue = self._choice.choose(queues, message, last_broker)
            try:
                return await attempt(queue)
            except PyrocketError as error:
                if not left or error.failed_send is not FailedSend.UNKNOWN:
                    raise
                _log.warning("a send to %s at %s is repeated: %s", queue, queue.broker, error)
                last_broker = queue.broker
        raise AssertionError("the last attempt returns or raises")

    async def _queues(self, topic: str, *, fresh: bool) -> Sequence[MessageQueue]:
        try:
            return (await self._routes.get(topic, fresh=fresh)).writable
        except TopicNotFoundError:
            return (await self._routes.created(topic)).writable


def _timed_out(topic: str, timeout_ms: int) -> TransportError:
    return TransportError(
        f"a send to topic {topic!r} was not answered within {timeout_ms} ms.",
        remedy="The message may have been stored: send it again, or increase `timeout_ms`.",
        repeat_is_safe=False,
        code="SEND_TIMEOUT",
    )
