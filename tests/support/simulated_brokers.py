"""A simulated network between the core of a client and the brokers of `store_brokers`.

`Network` is the `ClientTransport` of one client; its invoker delays, loses and repeats requests and
replies.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pyrocket.client.transport import ClientTransport
from pyrocket.errors import (
    PyrocketError,
    StoreUnavailableError,
    TransportError,
)
from pyrocket.values.consuming import (
    GroupPosition,
    PullStatus,
)
from pyrocket.values.routes import TopicSettings

from support.simulated_loop import START_S

LOCK_S, TIMEOUT_S = 60, 3


@dataclass
class Broker:
    """One broker.

    Attributes:
        down: Whether it refuses connections.
        hangs: Whether it answers no call; it executes the calls as soon as it continues.
        refuses_commits: Whether commits fail with an error that is not one of the transport.
        clock_ahead_ms: The difference of its wall clock to that of the simulation.
        last_store_ms: The store time of the last message: store times never decrease.
    """

    name: str
    down: bool = False
    hangs: bool = False
    refuses_commits: bool = False
    clock_ahead_ms: int = 0
    last_store_ms: int = 0
    waiting: list = field(default_factory=list, repr=False)
    parked: list = field(default_factory=list, repr=False)

    def resume(self):
        """Execute the calls that have arrived since the broker hangs."""
        self.hangs = False
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    def park(self, call, until_s):
        """Execute a call again at each change, and at a time."""
        self.parked.append((asyncio.get_running_loop().call_at(until_s, call), call))

    def wake(self):
        """Execute the calls again that wait for messages."""
        parked, self.parked = self.parked, []
        for timer, call in parked:
            loop = asyncio.get_running_loop()
            if timer.when() > loop.time():
                timer.cancel()
                loop.call_soon(call)

    def now_ms(self):
        return now_ms() + self.clock_ahead_ms


def now_ms():
    """Return the time of the loop; before it runs, the time at which it will start."""
    try:
        return int(1000 * asyncio.get_running_loop().time())
    except RuntimeError:
        return 1000 * START_S


class Observer:
    """Is notified of what the brokers of a cluster have executed."""

    def heard(self, broker, client_id, heartbeat):
        """A heartbeat was executed."""

    def joined(self, broker, heartbeat):
        """The reply to a heartbeat has arrived."""

    def started(self, client_id, queue, offset):
        """A client has asked for the offset at which it starts, or for the committed one."""

    def locked(self, client_id, queues):
        """A client has locked queues, or renewed its locks."""

    def unlocked(self, client_id, queues):
        """A client has unlocked queues."""

    def restarted(self, broker):
        """A broker was restarted."""

    def committed(self, group, queue, offset):
        """Offsets were committed; this is the group's offset now."""


class Network(ClientTransport):
    """The transport of one client. `random` decides about delays, losses and repeats.

    client_id: The client, for the cluster's observer.
    loss: The share of requests, and of replies, that are lost.
    commit_s: The time that a commit takes longer than other calls.
    """

    def __init__(self, cluster, random, client_id="", *, max_delay_s=0.0, loss=0.0, commit_s=0.0):
        super().__init__(Link(self))
        self.cluster, self.random, self.client_id = cluster, random, client_id
        self.max_delay_s, self.loss, self.commit_s = max_delay_s, loss, commit_s
        self.is_cut_off = False
        self.loop = None

    def delay(self):
        return self.random.uniform(0, self.max_delay_s)

    async def execute(self, broker, work, *, repeats=True, hold_s=0, again=None):
        """Execute `work` at a broker; return its result, or raise TransportError after a time-out.

        The request waits at the broker for `hold_s` at most, while `again` is true of the result.
        """
        self.loop = asyncio.get_running_loop()
        reply = self.loop.create_future()
        home = self.cluster.loop or self.loop
        ends_s = home.time() + hold_s
        request = partial(self._execute, broker, work, reply, repeats, ends_s, again)
        home.call_later(self.delay(), request)
        timer = self.loop.call_later(TIMEOUT_S + hold_s, _fail, reply, _lost())
        try:
            return await reply
        finally:
            timer.cancel()

    def _execute(self, broker, work, reply, repeats, ends_s, again):
        home = asyncio.get_running_loop()
        place = self.cluster.brokers.get(broker)
        if self._is_lost():
            return
        if place is not None and place.down:
            home.call_later(self.delay(), reply.get_loop().call_soon, _fail, reply, _lost())
            return
        request = partial(self._execute, broker, work, reply, repeats, ends_s, again)
        if place is not None and place.hangs:
            place.waiting.append(request)
            return
        try:
            result = work()
        except Exception as error:
            answer = partial(_fail, reply, error)
        else:
            answer = partial(_succeed, reply, result)
            if again is not None and again(result) and home.time() < ends_s:
                place.park(request, ends_s)
                return
            if repeats and self.random.random() < self.loss:
                home.call_later(self.delay(), self._again, work)
        home.call_later(self.delay(), self._answer, place, reply, answer)

    def _is_lost(self):
        return self.is_cut_off or self.random.random() < self.loss

    def _answer(self, place, reply, answer):
        if not self._is_lost() and not (place is not None and (place.down or place.hangs)):
            reply.get_loop().call_soon(answer)

    def _again(self, work):
        with suppress(PyrocketError):  # The reply to a repeated request is not read.
            work()


class Link:
    """The `Invoker` of a network."""

    def __init__(self, network):
        self._network = network

    async def invoke(self, broker, call, reply, /, **asked):
        network, cluster = self._network, self._network.cluster

        def work():
            if call == "CommitOffsets" and cluster.brokers[broker].refuses_commits:
                raise StoreUnavailableError("the disk is full", remedy="")
            result = cluster.answers(broker)[call](**asked)
            self._executed(broker, call, asked, result)
            return result

        if call == "CommitOffsets":
            await asyncio.sleep(network.commit_s)
        repeats = call not in ("LockQueues", "UnlockQueues")
        result = await network.execute(broker, work, repeats=repeats)
        if call == "JoinGroups":
            cluster.observer.joined(broker, asked["heartbeat"])
        return result

    def _executed(self, broker, call, asked, result):
        cluster, client_id = self._network.cluster, self._network.client_id
        observer = cluster.observer
        if call == "JoinGroups":
            observer.heard(broker, client_id, asked["heartbeat"])
        elif call in ("StartOffset", "CommittedOffset"):
            offset = result.offset if isinstance(result, GroupPosition) else result
            observer.started(client_id, asked["queue"], offset)
        elif call == "LockQueues":
            observer.locked(asked["client_id"], result.value)
        elif call == "UnlockQueues":
            observer.unlocked(asked["client_id"], asked["queues"])
        elif call == "SendBack":
            cluster.sent_back.append((asked["queue"], asked["queue_offset"]))
        elif call == "CommitOffsets":
            for queue, state in result.items():
                observer.committed(asked["group"], queue, state.next_offset)

    async def pull(self, request):
        return await self._network.execute(
            request.queue.broker,
            lambda: self._network.cluster.pull(request),
            hold_s=request.hold_ms / 1000,
            again=lambda reply: reply.status is PullStatus.NO_NEW_MSG,
        )

    async def topics(self, topic):
        cluster = self._network.cluster
        if not cluster.has_routes:
            await asyncio.sleep(TIMEOUT_S)
            raise _lost("no name server answers")
        live = await self._network.execute(None, lambda: cluster.topics(topic))
        return TopicSettings(live, {})

    async def brokers(self):
        return sorted(self._network.cluster.brokers)

    def watch(self, received, *, group, client_id):
        self._network.loop = asyncio.get_running_loop()
        watcher = group, self._network, received
        self._network.cluster.watchers.append(watcher)
        return lambda: self._network.cluster.watchers.remove(watcher)

    async def close(self):
        pass


def _lost(why="lost"):
    return TransportError(why, remedy="", repeat_is_safe=True)


def _succeed(reply, result):
    if not reply.done():
        reply.set_result(result)


def _fail(reply, error):
    if not reply.done():
        reply.set_exception(error)
