"""Brokers in memory behind a simulated network, for the core of the clients.

`Brokers` has the state of a cluster: messages, groups, offsets and locks. `Network` is the
`ClientTransport` of one client; its invoker delays, loses and repeats requests and replies.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pyrocket.client.transport import ClientTransport
from pyrocket.errors import (
    InvalidInputError,
    MessageNotFoundError,
    PyrocketError,
    QueueNotFoundError,
    StoreUnavailableError,
    TransportError,
)
from pyrocket.values.admin import TopicConfig
from pyrocket.values.consuming import (
    Committed,
    GroupPosition,
    GroupStart,
    GroupStarts,
    Locked,
    Pulled,
    PullStatus,
)
from pyrocket.values.message import MessageQueue, QueueOffsets, StoredMessage
from pyrocket.values.routes import TopicSettings

from support.simulated_loop import START_S

EXPIRY_S, LOCK_S, TIMEOUT_S = 120, 60, 3
RETRY_DELAY_S = 10
RECORD_BYTES = 100
"""The bytes that a message takes in a log."""


@dataclass
class Broker:
    """One broker.

    Attributes:
        down: Whether it refuses connections.
        hangs: Whether it answers no call; it executes the calls as soon as it continues.
        refuses_commits: Whether commits fail with an error that is not one of the transport.
        clock_ahead_ms: The difference of its wall clock to that of the simulation.
        log_end: The offset of the next message in its log.
        last_store_ms: The store time of the last message: store times never decrease.
    """

    name: str
    down: bool = False
    hangs: bool = False
    refuses_commits: bool = False
    clock_ahead_ms: int = 0
    log_end: int = 0
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


class Brokers:
    """All state that the brokers of a cluster keep.

    Attributes:
        loop: The event loop of the brokers; None for that of the client.
    """

    def __init__(self, names, topics):
        self.brokers = {name: Broker(name) for name in names}
        self.queues = {
            topic: [MessageQueue(topic, name, number) for name in names for number in range(count)]
            for topic, count in topics.items()
        }
        self.closed = set()
        self.has_routes = True
        self.messages = defaultdict(list)
        self.first_offsets = defaultdict(int)
        self.committed = {}
        self.starts = {name: defaultdict(dict) for name in names}
        self.members = {name: defaultdict(dict) for name in names}
        self.locks = {name: {} for name in names}
        self.dead_letters, self.sent_back, self.cuts = [], [], []
        self.watchers = []
        self.observer, self.loop = Observer(), None

    def append(self, queue, body, properties=(), reconsume_times=0):
        broker = self.brokers[queue.broker]
        offset = self.first_offsets[queue] + len(self.messages[queue])
        broker.last_store_ms = max(broker.last_store_ms, broker.now_ms())
        self.messages[queue].append(
            StoredMessage(
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=offset,
                physical_offset=broker.log_end,
                store_size=RECORD_BYTES,
                body=body,
                properties=dict(properties),
                born_timestamp=0,
                store_timestamp=broker.last_store_ms,
                born_host="",
                store_host="",
                flag=0,
                sys_flag=0,
                reconsume_times=reconsume_times,
                prepared_transaction_offset=0,
                msg_id="",
            )
        )
        broker.log_end += RECORD_BYTES
        broker.wake()
        return offset

    def range(self, queue):
        first = self.first_offsets[queue]
        return QueueOffsets(first, first + len(self.messages[queue]))

    def restart(self, name):
        """Lose the members; locks are kept, as if they had been renewed."""
        self.members[name].clear()
        now, locks = asyncio.get_running_loop().time(), self.locks[name]
        locks.update({place: (owner, now) for place, (owner, _) in locks.items()})
        self.observer.restarted(name)

    def truncate(self, queue, end):
        """Lose the last messages of a queue, as a primary does whose replica is promoted."""
        self.cuts.append({queue: end})
        del self.messages[queue][end - self.first_offsets[queue] :]
        for place, offset in self.committed.items():
            if place[1] == queue:
                self.committed[place] = min(offset, end)
        self.restart(queue.broker)

    def valid_end(self, queue, epoch):
        cuts = [] if epoch is None else self.cuts[epoch:]
        return min([self.range(queue).maximum, *(cut[queue] for cut in cuts if queue in cut)])

    def notify(self, broker, group):
        notify_watchers(self.watchers, group)

    def answers(self, broker):
        """Call → the function that answers it at a broker."""
        return {
            "Topics": list,
            "JoinGroups": partial(self.heartbeat, broker),
            "LeaveGroup": partial(self.unregister, broker),
            "GroupStarts": partial(self.group_starts, broker),
            "GroupMembers": partial(self.member_ids, broker),
            "CheckFilter": lambda topic, subscription: None,
            "StartOffset": self.start_offset,
            "CommittedOffset": self.committed_of,
            "CommitOffsets": partial(self.commit, broker),
            "LockQueues": partial(self.lock, broker),
            "UnlockQueues": partial(self.unlock, broker),
            "SendBack": self.send_back,
        }

    def topics(self, topic):
        """Return the settings of a topic by broker."""
        queues = [queue.broker for queue in self.queues.get(topic, ())]
        writable = [queue.broker for queue in self.writable(topic)]
        return {
            name: TopicConfig(topic, queues.count(name), writable.count(name))
            for name in sorted({*queues})
        }

    def writable(self, topic):
        return [queue for queue in self.queues.get(topic, ()) if queue not in self.closed]

    def close_queue(self, topic, broker):
        """Make a broker's last queue read-only and return it; None if it has no other queue."""
        *others, last = [queue for queue in self.writable(topic) if queue.broker == broker]
        if not others:
            return None
        self.closed.add(last)
        return last

    def remove_queue(self, queue):
        self.queues[queue.topic].remove(queue)
        self.closed.discard(queue)

    def add_queue(self, topic, broker):
        """Add a queue, or make the queues that are being removed writable again."""
        if closed := {queue for queue in self.closed if queue.broker == broker}:
            self.closed -= closed
            return
        number = sum(queue.broker == broker for queue in self.queues[topic])
        self.queues[topic] = sorted([*self.queues[topic], MessageQueue(topic, broker, number)])

    def create_topic(self, topic, queues):
        """Create a topic with this number of queues at every broker."""
        self.queues[topic] = [
            MessageQueue(topic, name, number)
            for name in sorted(self.brokers)
            for number in range(queues)
        ]

    def delete_topic(self, topic):
        """Delete a topic, its messages, and the offsets of all groups in it.

        A new topic of the same name continues the queue offsets, as in the store.
        """
        for queue in self.queues.pop(topic):
            self.first_offsets[queue] += len(self.messages.pop(queue, ()))
            self.closed.discard(queue)
        self.committed = {
            place: offset for place, offset in self.committed.items() if place[1].topic != topic
        }

    def heartbeat(self, broker, heartbeat):
        """Return whether the client was a live member of all groups of its heartbeat."""
        now, were_live = asyncio.get_running_loop().time(), []
        for data in heartbeat.consumers:
            self._store_starts(self.brokers[broker], data)
            retry = f"%RETRY%{data.group}"
            if retry not in self.queues:
                self.queues[retry] = [MessageQueue(retry, name, 0) for name in sorted(self.brokers)]
            members = self.members[broker][data.group]
            is_new = now - members.get(heartbeat.client_id, -EXPIRY_S) >= EXPIRY_S
            members[heartbeat.client_id] = now
            if is_new:
                self.notify(broker, data.group)
            were_live.append(not is_new)
        return all(were_live)

    def _store_starts(self, broker, data):
        starts = self.starts[broker.name][data.group]
        for topic, start in data.starts.items():
            starts.setdefault(topic, start.stored_at(self._end(broker)))

    def _end(self, broker):
        return GroupStart(broker.log_end, broker.now_ms())

    def group_starts(self, broker, group):
        return GroupStarts(self._end(self.brokers[broker]), dict(self.starts[broker][group]))

    def start_offset(self, group, queue, start=None):
        self._require(queue)
        committed = self.committed.get((group, queue))
        if start is None and committed is not None:
            return GroupPosition(committed, len(self.cuts))
        start = start or self.starts[queue.broker][group].get(queue.topic, GroupStart(0))
        available = self.range(queue)
        for message in self.messages[queue]:
            end = start.end_offset if start.log_offset is None else start.log_offset
            is_after = end is not None and message.physical_offset >= end
            if start.log_offset is None:
                is_after = is_after or message.store_timestamp >= start.time_ms
            if is_after:
                return GroupPosition(message.queue_offset, len(self.cuts))
        return GroupPosition(available.maximum, len(self.cuts))

    def _require(self, queue):
        if queue not in self.queues.get(queue.topic, ()):
            raise QueueNotFoundError(f"{queue} does not exist.", remedy="")

    def unregister(self, broker, client_id, group):
        if self.members[broker][group].pop(client_id, None) is not None:
            self.notify(broker, group)

    def member_ids(self, broker, group):
        oldest = asyncio.get_running_loop().time() - EXPIRY_S
        return [name for name, seen in self.members[broker][group].items() if seen > oldest]

    def lock(self, broker, group, client_id, queues):
        now, granted = asyncio.get_running_loop().time(), {}
        locks = self.locks[broker]
        for queue in queues:
            owner, since = locks.get((group, queue), ("", -LOCK_S))
            is_held = now - since < LOCK_S
            if owner == client_id or not is_held:
                locks[group, queue] = client_id, now
                granted[queue] = is_held
        return Locked([*granted], [queue for queue, is_held in granted.items() if is_held])

    def unlock(self, broker, group, client_id, queues):
        locks = self.locks[broker]
        for queue in queues:
            if locks.get((group, queue), ("",))[0] == client_id:
                del locks[group, queue]

    def pull(self, request):
        queue, offset, epoch = request.queue, request.offset, len(self.cuts)
        self._require(queue)
        available = self.range(queue)
        valid_end = self.valid_end(queue, request.epoch)
        if (valid := corrected_offset(offset, replace(available, maximum=valid_end))) != offset:
            return Pulled(PullStatus.OFFSET_ILLEGAL, valid, available, epoch=epoch)
        start = offset - available.minimum
        found = self.messages[queue][start : start + request.max_messages]
        status = PullStatus.FOUND if found else PullStatus.NO_NEW_MSG
        return Pulled(status, offset + len(found), available, found, epoch)

    def committed_of(self, group, queue):
        return self.committed.get((group, queue))

    def commit(self, broker, group, client_id, incarnation, offsets, epoch):
        if client_id not in self.members[broker][group]:
            raise InvalidInputError("not a member", remedy="", code="COMMIT_FENCED")
        replies = {}
        for queue, offset in offsets.items():
            if queue not in self.queues.get(queue.topic, ()):
                continue
            available = self.range(queue)
            known = self.committed.get((group, queue), 0)
            offset = min(offset, self.valid_end(queue, epoch))
            after = offset if known > available.maximum else max(known, offset)
            self.committed[group, queue] = after
            replies[queue] = Committed(available.minimum, available.maximum, after)
        return replies

    def send_back(
        self, group, queue, queue_offset, delay_level, max_reconsume_times, failed_attempts=1
    ):
        if not self.range(queue).minimum <= queue_offset < self.range(queue).maximum:
            raise MessageNotFoundError("the message was deleted.", remedy="")
        message = self.messages[queue][queue_offset - self.range(queue).minimum]
        times = message.reconsume_times
        most = 16 if max_reconsume_times < 0 else max_reconsume_times
        if delay_level < 0 or times >= most:
            self.dead_letters.append(message)
            return
        to = MessageQueue(f"%RETRY%{group}", queue.broker, 0)
        origin = {"RETRY_TOPIC": message.properties.get("RETRY_TOPIC", message.topic)}
        asyncio.get_running_loop().call_later(
            RETRY_DELAY_S, lambda: self.append(to, message.body, origin, times + 1)
        )


def notify_watchers(watchers, group):
    """Send a notification to those clients that watch a group."""
    for watched, client, received in [*watchers]:
        if watched == group:
            asyncio.get_running_loop().call_later(
                client.delay(), client.loop.call_soon, received, None
            )


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


def corrected_offset(requested, available):
    """Return the nearest offset to pull from.

    Brokers up to 4.9.3 correct an offset after the maximum to 0 if the minimum is 0.
    """
    return min(max(requested, available.minimum), available.maximum)
