"""The core of a push consumer: its start, its periodic tasks, and its stop.

Source: `DefaultMQPushConsumerImpl`, `MQClientInstance`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from pyrocket.client.consume_from import consume_timestamp
from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.concurrent import ConcurrentConsumption
from pyrocket.client.core.group_member import (
    LOCK_S,
    REBALANCE_S,
    GroupMember,
    QueuesChanged,
)
from pyrocket.client.core.listening import Listen, Stats
from pyrocket.client.core.offsets import Offsets, OffsetStore
from pyrocket.client.core.orderly import OrderlyConsumption
from pyrocket.client.core.process_queue import Limits, ProcessQueue
from pyrocket.client.core.pulling import Pulling
from pyrocket.client.core.routes import Routes
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.consuming import MessageModel, Subscription
from pyrocket.errors import PyrocketError, TopicNotFoundError
from pyrocket.formats.system_topics import RETRY_PREFIX

PERSIST_S = 5

_AFTER_ERROR_S = 1
_MIB = 1 << 20

_log = logging.getLogger(__name__)


class ConsumerCore:
    """One push consumer. Create, start and stop it in one event loop.

    Attributes:
        stats: Counts since the start.
        exited: Resolved with ListenerExitError if a listener ends the program.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        member: Member,
        transport: ClientTransport,
        offsets: OffsetStore,
        listen: Listen,
        *,
        now_ms: int,
        random: Random,
        queues_changed: QueuesChanged | None = None,
    ) -> None:
        """`now_ms` is the time in epoch milliseconds, for `ConsumeFrom.TIMESTAMP`."""
        self._config, self._transport = config, transport
        self._client_id = member.client_id
        self.stats, self._stopping = Stats(), False
        self._subscriptions = _subscriptions_of(config)
        self._routes = Routes(transport)
        self._offsets = Offsets(offsets)
        kind = OrderlyConsumption if config.orderly else ConcurrentConsumption
        self._consumption = kind(config, transport, self._offsets, listen, self.stats)
        self.exited = self._consumption.exited
        self._pulling = Pulling(
            config,
            transport,
            self._subscriptions,
            self._offsets,
            self._consumption,
            self._limits,
            self._correct,
        )
        self._member = GroupMember(
            config,
            member,
            transport,
            self._routes,
            self._offsets,
            self._subscriptions,
            self._consumption,
            timestamp_ms=consume_timestamp(config.consume_timestamp, now_ms),
            stats=self.stats,
            random=random,
            taken=self._pull,
            queues_changed=queues_changed,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._changes = asyncio.Event()
        self._stop_watching: Callable[[], None] = lambda: None

    @property
    def held(self) -> dict[Any, ProcessQueue]:
        """The queues that this consumer holds."""
        return self._member.held

    @property
    def queues(self) -> dict[str, int]:
        """Topic → the number of its queues, without the retry topic."""
        return {
            topic: len(route.readable)
            for topic, route in self._routes.known().items()
            if not topic.startswith(RETRY_PREFIX)
        }

    async def start(self) -> None:
        """Join the group and take queues.

        Raises TopicNotFoundError unless the consumer waits for missing topics, InvalidInputError
        (ILLEGAL_FILTER_EXPRESSION, DUPLICATE_CLIENT), GroupNotFoundError, TransportError. After an
        error the consumer is stopped.
        """
        try:
            brokers = await self._check(self._subscriptions)
            self._stop_watching = self._transport.watch(
                self._config.group, self._client_id, lambda changed: self._changes.set()
            )
            for broker in sorted(brokers):
                await self._member.join(broker)
            await self._member.rebalance()
        except BaseException:
            await self.stop(timeout_s=0)
            raise
        self._every(PERSIST_S, self._save)
        if self._config.orderly:
            self._every(LOCK_S, self._member.lock_all)
        self._spawn(self._rebalance())
        self._spawn(self._routes.refresh(lambda topic: self._changes.set()))

    async def subscribe(self, topic: str, subscription: Subscription) -> None:
        """Consume a topic from now on, or change what is consumed of it.

        Messages that were already pulled are not filtered again. Raises TopicNotFoundError and
        InvalidInputError (ILLEGAL_FILTER_EXPRESSION).
        """
        await self._check({topic: subscription})
        known = self._subscriptions.get(topic)
        version = 0 if known is None else known.version + 1
        self._subscriptions[topic] = replace(subscription, version=version)
        self._changes.set()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic: its queues are released at the next rebalance, which is soon."""
        self._subscriptions.pop(topic, None)
        self._changes.set()

    async def stop(self, timeout_s: float | None = None) -> int:
        """Stop pulling, wait for running listeners, commit, unlock the queues, leave the group.

        Returns the number of messages that listeners still had when the time was over; they are
        delivered again.
        """
        if self._stopping:
            return 0
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        if timeout_s is None:
            timeout_s = self._config.stop_timeout_ms / 1000
        unfinished = await self._consumption.stop(timeout_s)
        await self._member.heartbeat()  # Only a member may commit: the broker may have restarted.
        await self._member.lose_all()
        self._stop_watching()  # Not earlier: a broker may remove a member that does not watch.
        await self._member.leave()
        return unfinished

    async def abandon(self) -> None:
        """Stop without committing, after a listener has ended the program."""
        self._stopping = True
        self._stop_watching()
        for task in self._tasks:
            task.cancel()
        await self._consumption.stop(0)

    async def _check(self, subscriptions: Mapping[str, Subscription]) -> set[str]:
        """Check topics and expressions at all brokers; return the brokers."""
        brokers: set[str] = set()
        for topic, subscription in subscriptions.items():
            if topic.startswith(RETRY_PREFIX):
                continue
            try:
                route = await self._routes.get(topic, fresh=True)
            except TopicNotFoundError:
                if self._config.missing_topic == "error":
                    raise
                _log.warning("%s does not exist yet and is consumed as soon as it does", topic)
                continue
            names = {queue.broker for queue in route.readable}
            for broker in sorted(names if subscription.kind != "TAG" else ()):
                await self._transport.check_filter(broker, topic, subscription)
            brokers |= names
        return brokers or {*await self._transport.brokers()}

    def _limits(self, held: ProcessQueue) -> Limits:
        config, topic = self._config, held.queue.topic
        queues = sum(queue.topic == topic for queue in self._member.held) or 1
        messages = config.pull_threshold_for_queue
        size = config.pull_threshold_size_for_queue
        if config.pull_threshold_for_topic != -1:
            messages = max(1, config.pull_threshold_for_topic // queues)
        if config.pull_threshold_size_for_topic != -1:
            size = max(1, config.pull_threshold_size_for_topic // queues)
        span = None if config.orderly else config.consume_concurrently_max_span
        return Limits(messages, size * _MIB, span)

    def _pull(self, held: ProcessQueue) -> None:
        self._spawn(self._pulling.run(held))

    def _correct(self, held: ProcessQueue, next_offset: int) -> None:
        self._offsets.reach(held.queue, next_offset)

        async def drop() -> None:
            await self._member.drop(held)
            self._changes.set()

        self._spawn(drop())

    async def _save(self) -> None:
        await self._offsets.save()

    async def _rebalance(self) -> None:
        """Send heartbeats and rebalance: at each change of group or route, and every 20 s."""
        while True:
            # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
            timer = asyncio.get_running_loop().call_later(REBALANCE_S, self._changes.set)
            await self._changes.wait()
            timer.cancel()
            self._changes.clear()
            await self._member.heartbeat()
            await self._member.rebalance()

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await work()
                except PyrocketError as error:
                    _log.warning("a periodic task failed and is repeated: %s", error)

        self._spawn(repeat())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the consumer ended unexpectedly", exc_info=error)


def _subscriptions_of(config: ConsumerConfig) -> dict[str, Subscription]:
    """Return the subscriptions by topic; clustering groups also consume their retry topic."""
    found = config.by_topic
    if config.message_model is MessageModel.CLUSTERING:
        found[RETRY_PREFIX + config.group] = Subscription()
    return found
