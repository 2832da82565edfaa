"""A member of a consumer group: which queues it holds.

Every member computes its own share of the queues from the sorted lists of queues and members.
Source: `RebalanceImpl`, `RebalancePushImpl`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random

from pyrocket.base.failures import attempt
from pyrocket.client.allocation import sort_members, sort_queues
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.core.listening import Stats
from pyrocket.client.core.membership import PATIENCE_S, Membership
from pyrocket.client.core.offsets import OffsetStore, save
from pyrocket.client.core.process_queue import LAPSE_S, ProcessQueue
from pyrocket.client.core.pulling import ListenerCall
from pyrocket.client.core.routes import Routes
from pyrocket.client.core.tasks import SideBySide, Tasks
from pyrocket.client.transport import ClientTransport, Member
from pyrocket.errors import PyrocketError, TopicNotFoundError
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.values.consuming import Subscription
from pyrocket.values.message import MessageQueue

LOCK_S = 20
"""Interval of renewals of locks."""

QueuesChanged = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""Called with a topic, all its queues, and those of this member. Source: `MessageQueueListener`."""


class GroupMember:
    """Holds the queues of one consumer. Used by one event loop.

    Attributes:
        membership: The heartbeats of the consumer.
        held: The queues that this member holds.
        leaving: The queues that it lost, until their last listener has finished.
        changes: Set to rebalance soon.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        member: Member,
        transport: ClientTransport,
        routes: Routes,
        offsets: OffsetStore,
        subscriptions: Mapping[str, Subscription],
        consumption: ListenerCall,
        *,
        timestamp_ms: int,
        stats: Stats,
        tasks: Tasks,
        random: Random,
        boot_s: Callable[[], float],
        taken: Callable[[ProcessQueue], object],
        queues_changed: QueuesChanged | None = None,
    ) -> None:
        """`taken` is called with each queue that this member takes, to pull its messages."""
        self._config, self._transport, self._routes = config, transport, routes
        self._offsets, self._subscriptions, self._consumption = offsets, subscriptions, consumption
        self._stats, self._random, self._boot_s = stats, random, boot_s
        self._taken, self._queues_changed = taken, queues_changed
        self.membership = Membership(
            config,
            member,
            transport,
            offsets,
            topics=subscriptions.keys,
            subscriptions=subscriptions,
            timestamp_ms=timestamp_ms,
            failures=stats,
            tasks=tasks,
            boot_s=boot_s,
            confirmed=self._confirm_at,
        )
        self.changes = asyncio.Event()
        self._tasks, self._changing = tasks, dict[str, SideBySide]()
        self._locking, self._saving = SideBySide(tasks), SideBySide(tasks)
        self._rebalancing = asyncio.Lock()
        self._counted_s = asyncio.get_running_loop().time()
        self._shares: dict[str, list[MessageQueue]] = {}
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.leaving: dict[ProcessQueue, asyncio.Task[None]] = {}

    @property
    def _is_locking(self) -> bool:
        return self._config.orderly and self.membership.is_clustering

    async def beat(self) -> None:
        """Send heartbeats to the brokers of all topics; errors are logged."""
        await self.membership.beat(await self._brokers())

    async def rebalance(self) -> None:
        """Take the queues of this member's share, and lose all others; errors are logged."""
        async with self._rebalancing:
            for topic in [*self._subscriptions]:
                what = f"the rebalance of {topic} is repeated"
                await attempt(self._stats, what, self._rebalance_topic(topic))
            gone = {queue.topic for queue in self.held} - self._subscriptions.keys()
            for topic in gone:
                self._shares.pop(topic, None)
                await self._change(topic, [])
            self._count_time()

    def is_own(self, held: ProcessQueue) -> bool:
        """Whether a queue is known to be held: this member was not suspended since it knew."""
        return not held.dropped and self._boot_s() - held.confirmed_s < LAPSE_S

    async def stay_awake(self) -> None:
        """Note that this member runs; after a suspension, ask the brokers which queues it holds."""
        now = self._boot_s()
        for held in () if self._is_locking else self.held.values():
            if now - held.confirmed_s < LAPSE_S:
                held.confirmed_s = now
            else:
                self.changes.set()

    async def lock_all(self) -> None:
        """Renew the locks of all queues of an orderly consumer."""
        names = {*self.held, *(pq.queue for pq in self.leaving)}

        async def lock(broker: str) -> None:
            queues = [queue for queue in names if queue.broker == broker]
            what = f"locks at {broker} are renewed later"
            await attempt(self._stats, what, self._lock(broker, queues))

        await self._locking.run({queue.broker for queue in names}, lock, patience_s=PATIENCE_S)

    async def save(self) -> None:
        """Store the offsets of all queues, side by side at all brokers."""

        async def store(broker: str) -> None:
            held = [pq for pq in self.held.values() if pq.queue.broker == broker]
            await save(self._offsets, held, self._stats)

        await self._saving.run({q.broker for q in self.held}, store, patience_s=PATIENCE_S)

    async def drop(self, held: ProcessQueue) -> None:
        """Lose one queue, if it is still held."""
        if self.held.get(held.queue) is held:
            await self._lose([held])

    async def leave(self, timeout_s: float) -> None:
        """Lose all queues and leave the group at every broker, within a time; errors are logged."""

        async def leave(broker: str) -> None:
            await attempt(self._stats, f"{broker} was not reached", self.membership.join(broker))
            held = [pq for pq in self.held.values() if pq.queue.broker == broker]
            await self._lose(held)  # Only a member may commit: the broker may have restarted.
            await self._released(broker)
            await self.membership.leave(broker)

        brokers = {*self.membership.brokers, *(queue.broker for queue in self.held)}
        leaving = [self._tasks.start(leave(broker)) for broker in sorted(brokers)]
        if leaving:
            await asyncio.wait(leaving, timeout=timeout_s)

    async def _released(self, broker: str) -> None:
        releases = [task for pq, task in self.leaving.items() if pq.queue.broker == broker]
        if releases:
            await asyncio.wait(releases)

    async def _rebalance_topic(self, topic: str) -> None:
        try:
            route = await self._routes.get(topic)
        except TopicNotFoundError:
            queues: Sequence[MessageQueue] = []
        else:
            queues = sort_queues(route.readable)
        share = await self._share(queues)
        if share is None:
            return
        await self._change(topic, share)
        if sorted(share) != self._shares.get(topic, []):
            self._shares[topic] = sorted(share)
            self._stats.rebalances += 1
            if self._queues_changed is not None:
                given = topic, queues, sorted(share)
                self._stats.call_back("queues_changed", self._queues_changed, *given)

    async def _share(self, queues: Sequence[MessageQueue]) -> Collection[MessageQueue] | None:
        """Return this member's queues of a topic; None if they are unknown."""
        if not queues or not self.membership.is_clustering:
            return queues
        members = await self.membership.members({queue.broker for queue in queues}, self._random)
        client_id = self.membership.member.client_id
        if client_id not in members:
            return None
        given = self._config.group, client_id, queues, sort_members(members)
        return self._stats.call_back("the strategy", self._config.strategy, *given)

    async def _change(self, topic: str, share: Collection[MessageQueue]) -> None:
        """Lose and take queues of a topic, side by side at all brokers."""

        async def change(broker: str) -> None:
            own = [pq for q, pq in self.held.items() if (q.topic, q.broker) == (topic, broker)]
            await self._lose([pq for pq in own if pq.queue not in share])
            wanted = [q for q in share if q.broker == broker and q not in self.held]
            await attempt(self._stats, f"queues at {broker} are taken later", self._take(wanted))

        if topic not in self._changing:
            self._changing[topic] = SideBySide(self._tasks, late=self.changes.set)
        held = {queue.broker for queue in self.held if queue.topic == topic}
        brokers = {queue.broker for queue in share} | held
        await self._changing[topic].run(brokers, change, patience_s=PATIENCE_S)

    async def _lose(self, lost: Collection[ProcessQueue], *, moved: bool = False) -> None:
        """Release queues; with `moved`, another member has committed offsets of them."""
        self._count_time()
        releases = []
        for held in lost:
            del self.held[held.queue]
            held.drop()
            self.leaving[held] = asyncio.ensure_future(self._release(held, moved=moved))
            releases.append(self.leaving[held])
        if releases and not self._config.orderly:
            await asyncio.wait(releases)

    async def _release(self, held: ProcessQueue, *, moved: bool) -> None:
        """Commit the offset of a lost queue after its last listener, and unlock it."""
        queue = held.queue
        try:
            await self._consumption.finished(held)
            if not moved:
                await save(self._offsets, [held], self._stats)
            if self._is_locking:
                group, client_id = self._config.group, self.membership.member.client_id
                call = self._transport.unlock(queue.broker, group, client_id, [queue])
                await attempt(self._stats, f"the lock of {queue} expires later", call)
        finally:
            del self.leaving[held]

    def _count_time(self) -> None:
        """Count the time without queues; called before the queues change."""
        now = asyncio.get_running_loop().time()
        if not self.held:
            self._stats.without_queues_s += now - self._counted_s
        self._counted_s = now

    async def _take(self, queues: Collection[MessageQueue]) -> None:
        """Take queues of one topic at one broker."""
        leaving = {pq.queue for pq in self.leaving}
        free = [queue for queue in queues if queue not in leaving]
        if not free:
            return
        broker, asked_s = free[0].broker, self._boot_s()
        if not self.membership.has_joined(broker, free[0].topic):
            await self.membership.join(broker)
        for queue in await self._lock(broker, free):
            await attempt(self._stats, f"{queue} is taken later", self._hold(queue, asked_s))

    async def _hold(self, queue: MessageQueue, confirmed_s: float) -> None:
        held = ProcessQueue(queue, await self._offsets.start(queue), confirmed_s)
        self._count_time()
        self.held[queue] = held
        self._consumption.add(held)
        self._taken(held)

    async def _lock(self, broker: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Return the queues that may be consumed; for orderly consumers, those that are locked."""
        asked_s = self._boot_s()
        if not self._is_locking:
            return [*queues]
        group, client_id = self._config.group, self.membership.member.client_id
        granted = await self._transport.lock(broker, group, client_id, queues)
        for was_locked in (True, False):
            own = [
                self.held[q] for q, kept in granted.items() if kept is was_locked and q in self.held
            ]
            await self._confirm(own, asked_s, is_known=was_locked)
        return [queue for queue in queues if queue in granted]

    async def _confirm_at(self, broker: str, was_member: bool, asked_s: float) -> None:
        """Confirm the queues of a broker that has answered a heartbeat; locks confirm themselves.

        The broker may have removed this member to reset the group, which keeps its locks.
        """
        held = [pq for pq in self.held.values() if pq.queue.broker == broker]
        if not self._is_locking:
            await self._confirm(held, asked_s, is_known=was_member)
        elif not was_member:
            await self._not_moved(held)

    async def _confirm(
        self, queues: Iterable[ProcessQueue], asked_s: float, *, is_known: bool
    ) -> None:
        """Keep queues that this member still holds, and drop those that another one had."""
        is_own = is_known or not self.membership.is_clustering
        for held in queues if is_own else await self._not_moved(queues):
            held.confirmed_s = asked_s

    async def _not_moved(self, queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        """Drop queues whose committed offsets were changed by others, and return the rest."""
        same, moved = list[ProcessQueue](), list[ProcessQueue]()
        for held in queues:
            committed = await self._transport.committed(self._config.group, held.queue)
            (moved if held.has_moved(committed) else same).append(held)
        if moved := [pq for pq in moved if self.held.get(pq.queue) is pq]:
            self.changes.set()
            await self._lose(moved, moved=True)
        return same

    async def _brokers(self) -> set[str]:
        """Return the brokers of all subscribed topics; for a missing topic, all brokers."""
        brokers: set[str] = set()
        for topic in [*self._subscriptions]:
            if topic.startswith(RETRY_PREFIX):
                continue
            try:
                brokers |= {queue.broker for queue in (await self._routes.get(topic)).readable}
            except PyrocketError:  # It does not exist yet, or no broker could be asked.
                brokers |= {*await self._transport.brokers()}
        return brokers or {*await self._transport.brokers()}
