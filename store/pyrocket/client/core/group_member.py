"""A member of a consumer group: which queues it holds, and its heartbeats.

Every member computes its own share of the queues from the sorted lists of queues and members.
Source: `RebalanceImpl`, `RebalancePushImpl`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

from pyrocket.client.allocation import sort_members, sort_queues
from pyrocket.client.consume_from import OffsetQuery, start_offset
from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.listening import Consumption, Stats, attempt
from pyrocket.client.core.offsets import Offsets
from pyrocket.client.core.process_queue import ProcessQueue
from pyrocket.client.core.routes import Routes
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.consuming import ConsumerData, Heartbeat, MessageModel, Subscription
from pyrocket.errors import PyrocketError, TopicNotFoundError
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.message import MessageQueue

REBALANCE_S = 20
"""Interval of rebalances and heartbeats. RocketMQ's heartbeats have one of their own, 30 s."""

LOCK_S = 20

PULL_EXPIRY_S = 120
"""A queue that was not pulled for so long is dropped and taken again."""

QueuesChanged = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""Called with a topic, all its queues, and those of this member. Source: `MessageQueueListener`."""

_log = logging.getLogger(__name__)


class GroupMember:
    """Holds the queues of one consumer. Used by one event loop.

    Attributes:
        held: The queues that this member holds.
        leaving: The queues that it lost, until their last listener has finished.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        member: Member,
        transport: ClientTransport,
        routes: Routes,
        offsets: Offsets,
        subscriptions: Mapping[str, Subscription],
        consumption: Consumption,
        *,
        timestamp_ms: int,
        stats: Stats,
        random: Random,
        taken: Callable[[ProcessQueue], None],
        queues_changed: QueuesChanged | None = None,
    ) -> None:
        """`taken` is called with each queue that this member takes, to pull its messages."""
        self._config, self._member, self._transport = config, member, transport
        self._routes, self._offsets, self._subscriptions = routes, offsets, subscriptions
        self._timestamp_ms, self._stats, self._random = timestamp_ms, stats, random
        self._consumption, self._taken = consumption, taken
        self._queues_changed = queues_changed
        self._rebalancing = asyncio.Lock()
        self._counted_s = asyncio.get_running_loop().time()
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.leaving: dict[MessageQueue, asyncio.Task[None]] = {}

    @property
    def _is_clustering(self) -> bool:
        return self._config.message_model is MessageModel.CLUSTERING

    async def heartbeat(self) -> None:
        """Join the group at every broker of its topics, or stay in it; errors are logged."""
        for broker in await self._brokers():
            await attempt(f"a heartbeat to {broker} is repeated", self.join(broker))

    async def join(self, broker: str) -> None:
        """Join the group at one broker.

        Raises InvalidInputError (DUPLICATE_CLIENT), GroupNotFoundError, TransportError.
        """
        data = ConsumerData(
            self._config.group,
            self._config.message_model,
            self._config.consume_from.value,
            dict(self._subscriptions),
        )
        beat = Heartbeat(self._member.client_id, self._member.incarnation, [data])
        await self._transport.heartbeat(broker, beat)

    async def leave(self) -> None:
        """Leave the group at every broker; errors are logged."""
        for broker in await self._brokers():
            call = self._transport.unregister(broker, self._member.client_id, self._config.group)
            await attempt(f"{broker} removes this member later", call)

    async def rebalance(self) -> None:
        """Take the queues of this member's share, and lose all others; errors are logged."""
        async with self._rebalancing:
            for topic in [*self._subscriptions]:
                await attempt(f"the rebalance of {topic} is repeated", self._rebalance_topic(topic))
            gone = [queue for queue in self.held if queue.topic not in self._subscriptions]
            await self._lose(gone)
            self._count_time()

    async def lock_all(self) -> None:
        """Renew the locks of all queues of an orderly consumer."""
        names = {*self.held, *self.leaving}
        for broker in sorted({queue.broker for queue in names}):
            queues = [queue for queue in names if queue.broker == broker]
            await attempt(f"locks at {broker} are renewed later", self._lock(broker, queues))

    async def lose_all(self) -> None:
        """Lose all queues, and wait until they are released."""
        await self._lose([*self.held])
        if self.leaving:
            await asyncio.wait([*self.leaving.values()])

    async def drop(self, held: ProcessQueue) -> None:
        """Lose one queue, if it is still held."""
        if self.held.get(held.queue) is held:
            await self._lose([held.queue])

    async def _rebalance_topic(self, topic: str) -> None:
        try:
            route = await self._routes.get(topic)
        except TopicNotFoundError:
            queues: Sequence[MessageQueue] = []
        else:
            queues = sort_queues(route.readable)
        mine = await self._share(topic, queues)
        if mine is not None:
            await self._change(topic, queues, mine)

    async def _share(
        self, topic: str, queues: Sequence[MessageQueue]
    ) -> Collection[MessageQueue] | None:
        """Return this member's queues of a topic; None if they are unknown."""
        if not queues or not self._is_clustering:
            return queues
        broker = self._random.choice(sorted({queue.broker for queue in queues}))
        group, client_id = self._config.group, self._member.client_id
        members = await self._transport.members(broker, group)
        if client_id not in members:
            # The broker was restarted, or this member was suspended for minutes.
            await self.join(broker)
            members = await self._transport.members(broker, group)
        if client_id not in members:
            return None
        return self._config.strategy(group, client_id, queues, sort_members(members))

    async def _change(
        self, topic: str, queues: Sequence[MessageQueue], mine: Collection[MessageQueue]
    ) -> None:
        now = asyncio.get_running_loop().time()
        own = {queue: held for queue, held in self.held.items() if queue.topic == topic}
        expired = [q for q, held in own.items() if now - held.pulled_s > PULL_EXPIRY_S]
        lost = [queue for queue in own if queue not in mine or queue in expired]
        await self._lose(lost)
        taken = await self._take([queue for queue in mine if queue not in self.held])
        if lost or taken:
            self._stats.rebalances += 1
            if self._queues_changed is not None:
                self._queues_changed(topic, queues, sorted(mine))

    async def _lose(self, queues: Collection[MessageQueue]) -> None:
        self._count_time()
        for queue in queues:
            held = self.held.pop(queue)
            held.drop()
            self.leaving[queue] = asyncio.ensure_future(self._release(held))
        if queues and not self._config.orderly:
            await asyncio.wait([self.leaving[queue] for queue in queues if queue in self.leaving])

    async def _release(self, held: ProcessQueue) -> None:
        """Commit the offset of a lost queue after its last listener, and unlock it."""
        queue = held.queue
        try:
            await self._consumption.finished(held)
            await self._offsets.save([queue])
            self._offsets.forget(queue)
            if self._config.orderly and self._is_clustering:
                call = self._transport.unlock(
                    queue.broker, self._config.group, self._member.client_id, [queue]
                )
                await attempt(f"the lock of {queue} expires later", call)
        finally:
            del self.leaving[queue]

    def _count_time(self) -> None:
        """Count the time without queues; called before the queues change."""
        now = asyncio.get_running_loop().time()
        if not self.held:
            self._stats.without_queues_s += now - self._counted_s
        self._counted_s = now

    async def _take(self, queues: Collection[MessageQueue]) -> list[MessageQueue]:
        free = [queue for queue in queues if queue not in self.leaving]
        taken = []
        for broker in sorted({queue.broker for queue in free}):
            here = [queue for queue in free if queue.broker == broker]
            for queue in await self._lock(broker, here):
                if (held := await self._start(queue)) is not None:
                    self._count_time()
                    self.held[queue] = held
                    self._consumption.add(held)
                    self._taken(held)
                    taken.append(queue)
        return taken

    async def _lock(self, broker: str, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return the queues that may be consumed; for orderly consumers, those that are locked."""
        asked_s = asyncio.get_running_loop().time()
        granted: Collection[MessageQueue] = queues
        if self._config.orderly and self._is_clustering:
            granted = await self._transport.lock(
                broker, self._config.group, self._member.client_id, queues
            )
        for queue in granted:
            if (held := self.held.get(queue)) is not None:
                held.locked_s = asked_s
        return [queue for queue in queues if queue in granted]

    async def _start(self, queue: MessageQueue) -> ProcessQueue | None:
        """Return a queue at the offset where its consumption starts; None after an error."""
        now = asyncio.get_running_loop().time()
        try:
            at = start_offset(
                queue.topic, await self._offsets.load(queue), self._config.consume_from
            )
            if at is OffsetQuery.MAXIMUM:
                at = (await self._transport.bounds(queue)).maximum
            elif at is OffsetQuery.BY_TIMESTAMP:
                at = await self._transport.offset_at(queue, self._timestamp_ms)
        except PyrocketError as error:
            _log.warning("the offset of %s is unknown; it is taken later: %s", queue, error)
            return None
        assert isinstance(at, int)
        return ProcessQueue(queue, at, now)

    async def _brokers(self) -> Collection[str]:
        """Return the brokers of all subscribed topics."""
        found: set[str] = set()
        for topic in [*self._subscriptions]:
            if topic.startswith(RETRY_PREFIX):
                continue
            try:
                found |= {queue.broker for queue in (await self._routes.get(topic)).readable}
            except PyrocketError as error:
                _log.warning("the brokers of %s are unknown: %s", topic, error)
        return sorted(found)
