"""The core of a push consumer: its start, its periodic tasks, and its stop.

Source: `DefaultMQPushConsumerImpl`, `MQClientInstance`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from pyrocket.client.config import ConsumerConfig
from pyrocket.client.consume_from import consume_timestamp
from pyrocket.client.core.concurrent import ConcurrentConsumption
from pyrocket.client.core.group_member import LOCK_S, GroupMember, QueuesChanged
from pyrocket.client.core.listening import Listen, Stats
from pyrocket.client.core.membership import HEARTBEAT_S, PATIENCE_S
from pyrocket.client.core.offsets import OffsetStore
from pyrocket.client.core.orderly import OrderlyConsumption
from pyrocket.client.core.process_queue import Limits, ProcessQueue
from pyrocket.client.core.pulling import Pulling
from pyrocket.client.core.routes import REFRESH_S, Routes
from pyrocket.client.core.tasks import Tasks, within
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.errors import PyrocketError, TopicNotFoundError, TransportError
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.values.consuming import MessageModel, Subscription

PERSIST_S = 5

_AWAKE_S = 5
_LEAVE_S = 5
"""How long a stop waits for brokers, in addition to the time for listeners."""

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
        boot_s: Callable[[], float] | None = None,
        queues_changed: QueuesChanged | None = None,
    ) -> None:
        """Create a consumer; nothing is called before `start`.

        now_ms: The time in epoch milliseconds, for `ConsumeFrom.TIMESTAMP`.
        boot_s: The time in seconds, on a clock that does not stop while the machine is suspended;
            by default that of the event loop.
        """
        self._config, self._transport = config, transport
        self._client_id = member.client_id
        self.stats, self._stopping, self._suspended = (stats := Stats()), False, False
        self._subscriptions = subscriptions = _subscriptions_of(config)
        self._routes, self._tasks = Routes(transport), Tasks(stats)
        kind = OrderlyConsumption if config.orderly else ConcurrentConsumption
        self._consumption = kind(
            config, transport, listen, stats, lambda held: self._member.is_own(held)
        )
        self.exited = self._consumption.exited
        self._pulling = Pulling(
            config, transport, subscriptions, stats, self._consumption, self._limits, self._correct
        )
        self._member = GroupMember(
            config,
            member,
            transport,
            self._routes,
            offsets,
            subscriptions,
            self._consumption,
            timestamp_ms=consume_timestamp(config.consume_timestamp, now_ms),
            stats=stats,
            tasks=self._tasks,
            random=random,
            boot_s=boot_s or asyncio.get_running_loop().time,
            taken=lambda held: self._tasks.start(self._pulling.run(held)),
            queues_changed=queues_changed,
        )
        self._changes = self._member.changes
        self._stop_watching: Callable[[], None] = lambda: None

    @property
    def held(self) -> dict[Any, ProcessQueue]:
        """The queues that this consumer holds."""
        return self._member.held

    async def start(self) -> None:
        """Join the group and take queues.

        Raises TopicNotFoundError unless the consumer waits for missing topics, InvalidInputError
        (ILLEGAL_FILTER_EXPRESSION, DUPLICATE_CLIENT), GroupNotFoundError, and TransportError if no
        broker can be reached. After an error the consumer is stopped.
        """
        try:
            brokers = await self._check(self._subscriptions)
            self._stop_watching = self._transport.watch(
                self._config.group, self._client_id, self._changes.set
            )
            await self._member.membership.start(brokers)
            await self._member.rebalance()
        except BaseException:
            await self.stop(timeout_s=0)
            raise
        repeat = self._tasks.repeat
        repeat("offsets are stored later", self._member.save, every_s=PERSIST_S)
        repeat("queues are confirmed later", self._member.stay_awake, every_s=_AWAKE_S)
        if self._config.orderly:
            repeat("locks are renewed later", self._member.lock_all, every_s=LOCK_S)
        repeat(
            "the rebalance is repeated", self._rebalance, every_s=HEARTBEAT_S, wake=self._changes
        )
        refresh = partial(self._routes.refresh, lambda topic: self._changes.set())
        repeat("the old routes remain in use", refresh, every_s=REFRESH_S)

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

    def suspend(self) -> None:
        """Start no more pulls; messages that were pulled are consumed."""
        self._suspended = True

    def resume(self) -> None:
        """Pull again."""
        self._suspended = False
        for held in self.held.values():
            held.changed.set()

    async def stop(self, timeout_s: float | None = None) -> int:
        """Stop pulling, wait for running listeners, commit, unlock the queues, leave the group.

        Returns the number of messages that listeners still had when the time was over; they are
        delivered again.
        """
        if self._stopping:
            return 0
        self._stopping = True
        self._tasks.cancel()
        if timeout_s is None:
            timeout_s = self._config.stop_timeout_ms / 1000
        unfinished = await self._consumption.stop(timeout_s)
        await self._member.leave(_LEAVE_S)
        self._stop_watching()  # Not earlier: a broker may remove a member that does not watch.
        self._tasks.cancel()
        return unfinished

    async def abandon(self) -> None:
        """Stop without committing, after a listener has ended the program."""
        self._stopping = True
        self._stop_watching()
        self._tasks.cancel()
        await self._consumption.stop(0)

    async def _check(self, subscriptions: Mapping[str, Subscription]) -> set[str]:
        """Check topics and expressions at all brokers; return the brokers."""
        topics = [topic for topic in subscriptions if not topic.startswith(RETRY_PREFIX)]
        checks = [self._check_topic(topic, subscriptions[topic]) for topic in topics]
        brokers = await asyncio.gather(*checks)
        return set[str]().union(*brokers) or {*await self._transport.brokers()}

    async def _check_topic(self, topic: str, subscription: Subscription) -> set[str]:
        """Return the brokers that have a topic; all brokers if the consumer waits for it."""
        try:
            route = await self._routes.get(topic, fresh=True)
        except TopicNotFoundError:
            if self._config.missing_topic == "error":
                raise
            similar: Sequence[str] = ()
            with suppress(PyrocketError):
                similar = await self._transport.similar_topics(topic)
            near = f"; similar topics are {', '.join(similar)}" if similar else ""
            _log.warning("%s does not exist yet and is consumed as soon as it does%s", topic, near)
            return {*await self._transport.brokers()}
        brokers = {queue.broker for queue in route.readable}
        if subscription.kind != "TAG":
            checks = [self._check_filter(broker, topic, subscription) for broker in sorted(brokers)]
            await asyncio.gather(*checks)
        return brokers

    async def _check_filter(self, broker: str, topic: str, subscription: Subscription) -> None:
        """Raise the error of a broker that rejects an expression; ignore one without an answer."""
        try:
            await within(PATIENCE_S, self._transport.check_filter(broker, topic, subscription))
        except TransportError as error:
            _log.warning("%s has not checked the expression for %s: %s", broker, topic, error)

    def _limits(self, held: ProcessQueue) -> Limits:
        if self._suspended:
            return Limits(messages=0, bytes=0, span=None)
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

    def _correct(self, held: ProcessQueue) -> None:
        async def drop() -> None:
            await self._member.drop(held)
            self._changes.set()

        self._tasks.start(drop())

    async def _rebalance(self) -> None:
        """Send heartbeats and rebalance: at each change of group or route, and every 20 s."""
        await self._member.beat()
        await self._member.rebalance()


def _subscriptions_of(config: ConsumerConfig) -> dict[str, Subscription]:
    """Return the subscriptions by topic; clustering groups also consume their retry topic."""
    subscriptions = config.by_topic
    if config.message_model is MessageModel.CLUSTERING:
        subscriptions[RETRY_PREFIX + config.group] = Subscription()
    return subscriptions
