"""Which queue a producer sends each message to, and what it learns from the sends."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from pyrocket.client.config import LEAST_LATENCY, ProducerConfig
from pyrocket.client.selection import FaultTable, LeastLatency, RoundRobin, Selector, choose_queue
from pyrocket.errors import InvalidInputError, MessageError, TransportError
from pyrocket.formats.hashes import queue_for_key
from pyrocket.values.message import Message, MessageQueue


class QueueChoice:
    """Chooses the queues for one producer. Used by one event loop."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        self._config, self._random = config, random
        self._faults = FaultTable() if config.avoid_slow_brokers else None
        self._positions: dict[str, RoundRobin] = {}
        self._latencies: dict[str, LeastLatency] = {}
        self._failed_ms: dict[str, float] = {}

    def choose(
        self, queues: Sequence[MessageQueue], message: Message, last_broker: str | None
    ) -> MessageQueue:
        """Return the queue for an attempt to send a message.

        A message with a queue id is sent to a queue with this id, one with a sharding key to the
        queue that the key selects, and all others to the next queue by the producer's settings.
        `last_broker` is the broker of the failed last attempt. Raises InvalidInputError
        (NO_QUEUES), MessageError (QUEUE_NOT_FOUND).
        """
        if message.queue_id is not None:
            queues = _with_id(queues, message)
        elif queues and message.sharding_key:
            return queues[queue_for_key(message.sharding_key, len(queues))]
        if self._config.queue_choice == LEAST_LATENCY:
            return self._latency(message.topic).choose(queues, last_broker=last_broker)
        position = self._position(message.topic)
        if last_broker is not None and self._faults is not None:
            position.restart(self._random.getrandbits(31))
        return choose_queue(
            queues, position, last_broker=last_broker, faults=self._faults, now_ms=_now_ms()
        )

    def succeeded(self, queue: MessageQueue, latency_ms: float) -> None:
        """Record a send that was answered."""
        if self._config.queue_choice == LEAST_LATENCY:
            self._latency(queue.topic).record(queue, latency_ms)
        if self._faults is not None:
            self._faults.record(queue.broker, int(latency_ms), _now_ms())

    def failed(self, queue: MessageQueue, latency_ms: float, error: Exception) -> None:
        """Record a send that failed. Source: `DefaultMQProducerImpl.sendDefaultImpl`."""
        if self._config.queue_choice == LEAST_LATENCY:
            timeout_ms = max(latency_ms, self._config.timeout_ms)
            self._latency(queue.topic).failed(queue, timeout_ms)
        if self._faults is not None:
            lost = isinstance(error, TransportError)
            self._faults.record(queue.broker, 0, _now_ms(), failed=True, reachable=lost)

    def _position(self, topic: str) -> RoundRobin:
        if topic not in self._positions:
            self._positions[topic] = RoundRobin(self._random.getrandbits(31))
        return self._positions[topic]

    def _latency(self, topic: str) -> LeastLatency:
        if topic not in self._latencies:
            self._latencies[topic] = LeastLatency(self._random.getrandbits(31), self._failed_ms)
        return self._latencies[topic]


def select(
    selector: Selector, queues: Sequence[MessageQueue], message: Message, argument: Any
) -> MessageQueue:
    """Return the queue that a selector returns.

    Raises InvalidInputError (NOT_A_QUEUE) unless it is one of the queues, and what the selector
    raises.
    """
    queue = selector(queues, message, argument)
    if queue not in queues:
        raise InvalidInputError(
            f"the selector returned {queue!r}, which is not a queue of topic {message.topic!r}.",
            remedy="Return one of the queues that the selector was called with.",
            code="NOT_A_QUEUE",
        )
    return queue


def _with_id(queues: Sequence[MessageQueue], message: Message) -> Sequence[MessageQueue]:
    matching = [queue for queue in queues if queue.queue_id == message.queue_id]
    if not matching:
        raise MessageError(
            f"the message names queue {message.queue_id}; no broker has this queue of topic"
            f" {message.topic!r}.",
            remedy="Use one of the topic's queues, or omit the queue id.",
            code="QUEUE_NOT_FOUND",
        )
    return matching


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
