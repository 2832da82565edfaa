"""Random schedules of a consumer group on a simulated clock, and what must hold in all of them.

Members join, leave, die and lose their connections; brokers restart and stop; the name server is
cut off; queues are added and removed; calls are delayed, lost and repeated, and commits are slow;
listeners are slow, some longer than the consume time-out, and fail. Members have no clock but that
of the loop. The schedule depends only on its seed.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random

from pyrocket.client.consume_from import ConsumeFrom
from pyrocket.client.consumer_config import ConsumerConfig
from pyrocket.client.core.consumer import ConsumerCore
from pyrocket.client.core.offsets import BrokerOffsets
from pyrocket.client.results import ConsumeResult
from pyrocket.client.transport import Member
from pyrocket.consuming import Subscription
from pyrocket.errors import PyrocketError

from support.simulated_brokers import Brokers, Network
from support.simulated_loop import run_simulated

GROUP, TOPIC = "billing", "orders"
QUIET_S = 400
"""More than the longest interruption (200 s), the time of a lock, and two rebalances."""


@dataclass
class Running:
    """A member of the group."""

    core: ConsumerCore
    network: Network
    listening: set = field(default_factory=set)


class Schedule:
    """One schedule. `run` raises AssertionError if a promise does not hold."""

    def __init__(self, seed, *, orderly, brokers=Brokers):
        """`brokers` creates the cluster from names and the number of queues of each topic."""
        self.random = Random(f"{seed} {orderly}")
        self.orderly = orderly
        random = self.random
        self.loss = random.choice([0, 0, 0.02, 0.1])
        self.max_delay_s = random.choice([0.01, 0.5, 2])
        # A lock counts as lost after 30 s and expires after 60 s, so an orderly listener takes less
        # than the difference.
        slow = [0, 1, 25] if orderly else [1, 25, 90]
        self.listener_s = random.choice([[0, 0.01, 0.5, 5], slow])
        names = ["a", "b"][: random.choice([1, 2])]
        self.cluster = brokers(names, {TOPIC: random.randint(1, 4)})
        self.cluster.commit_checks.append(self._check_commit)
        self.members, self.count, self.sent = {}, 0, 0
        self.processed = Counter()
        self.order = defaultdict(list)
        self.events = []
        self.faults = []

    def run(self):
        run_simulated(self._main())

    async def _main(self):
        self._send(self.random.randint(5, 40))
        await self._join()
        for _ in range(self.random.randint(4, 14)):
            step = self.random.choice(self._steps())
            self.events.append((round(self._now(), 1), step.__name__))
            await step()
            await asyncio.sleep(self.random.choice([0, 0.1, 1, 5, 30]))
        await self._become_quiet()
        self._check()
        for one in [*self.members.values()]:
            await one.core.stop()

    def _expect(self, holds, fault):
        """Record a broken promise; consumers would catch an exception."""
        if not holds:
            self.faults.append(f"{self._now():.1f} s: {fault}")

    def _now(self):
        return asyncio.get_running_loop().time() - 1_000_000

    def _steps(self):
        return [
            *(self._join, self._join, self._leave, self._die, self._send_more, self._send_more),
            *(self._restart_broker, self._cut_off, self._stop_broker, self._add_queue),
            *(self._remove_queue, self._cut_off_name_server),
        ]

    def _send(self, count):
        for _ in range(count):
            queue = self.random.choice(self.cluster.writable(TOPIC))
            self.cluster.append(queue, b"%d" % self.sent)
            self.sent += 1

    async def _send_more(self):
        self._send(self.random.randint(1, 30))

    async def _join(self):
        self.count += 1
        name = f"c{self.count}"
        network = Network(
            self.cluster,
            Random(self.random.random()),
            max_delay_s=self.max_delay_s,
            loss=self.loss,
            commit_s=self.random.choice([0, 0, 10]),
        )
        settings = ConsumerConfig(
            group=GROUP,
            subscriptions={TOPIC: Subscription()},
            consume_from=ConsumeFrom.FIRST,
            orderly=self.orderly,
            consume_timeout_min=self.random.choice([1, 15]),
            thread_max=self.random.choice([1, 4]),
            consume_message_batch_max_size=self.random.choice([1, 3]),
        )
        member = Member(name, name)
        core = ConsumerCore(
            settings,
            member,
            network,
            BrokerOffsets(network, GROUP, member),
            self._listener(name),
            now_ms=0,
            random=Random(self.random.random()),
        )
        try:
            await core.start()
        except PyrocketError:
            return
        self.members[name] = Running(core, network)

    def _listener(self, name):
        random = Random(self.random.random())

        async def listen(queue, messages):
            member = self.members.get(name)
            if self.orderly:
                self._check_alone(queue, name)
            self.order[queue].append((name, "begin"))
            await asyncio.sleep(random.choice(self.listener_s))
            self.order[queue].append((name, "end"))
            if member is not None and not member.network.is_alive:
                await asyncio.sleep(1e9)  # A dead process returns nothing.
            if random.random() < 0.1:
                return random.choice([ConsumeResult.RECONSUME_LATER, None])
            for message in messages:
                self._consumed(queue, message)
            return ConsumeResult.SUCCESS

        return listen

    def _consumed(self, queue, message):
        place = queue, message.queue_offset
        if self.orderly and not self.processed[place]:
            first = self.cluster.range(queue).minimum
            missing = [
                n for n in range(first, message.queue_offset) if not self.processed[queue, n]
            ]
            self._expect(not missing, f"{queue}: {message.queue_offset} before {missing}")
        self.processed[place] += 1

    def _check_alone(self, queue, name):
        running = Counter()
        for who, what in self.order[queue]:
            running[who] += 1 if what == "begin" else -1
        others = [
            who
            for who, count in running.items()
            if count > 0 and who != name and who in self.members and self._is_alive(who)
        ]
        self._expect(not others, f"{queue}: {name} and {others} at once")

    def _is_alive(self, name):
        return self.members[name].network.is_alive

    async def _leave(self):
        if len(self.members) > 1:
            name = self.random.choice(sorted(self.members))
            await self.members[name].core.stop(timeout_s=30)
            del self.members[name]

    async def _die(self):
        if len(self.members) > 1:
            one = self.members.pop(self.random.choice(sorted(self.members)))
            one.network.is_alive, one.network.is_cut_off = False, True
            await one.core.abandon()

    async def _restart_broker(self):
        self.cluster.restart(self.random.choice(sorted(self.cluster.brokers)))

    async def _stop_broker(self):
        broker = self.cluster.brokers[self.random.choice(sorted(self.cluster.brokers))]
        broker.down = True
        asyncio.get_running_loop().call_later(self.random.choice([1, 20]), self._up, broker)

    def _up(self, broker):
        self.cluster.restart(broker.name)
        broker.down = False

    async def _cut_off(self):
        if self.members:
            one = self.members[self.random.choice(sorted(self.members))]
            one.network.is_cut_off = True
            later = self.random.choice([1, 10, 100, 200])
            asyncio.get_running_loop().call_later(later, self._reconnect, one)

    def _reconnect(self, one):
        one.network.is_cut_off = not one.network.is_alive

    async def _add_queue(self):
        self.cluster.add_queue(TOPIC, self.random.choice(sorted(self.cluster.brokers)))

    async def _remove_queue(self):
        """Remove a queue in RocketMQ's order: nothing is sent to it, and it is read to its end."""
        queue = self.cluster.close_queue(TOPIC, self.random.choice(sorted(self.cluster.brokers)))
        if queue is not None:
            self._remove_when_read(queue)

    def _remove_when_read(self, queue):
        if queue in self.cluster.writable(TOPIC):  # A queue was added instead.
            return
        last = max(one for one in self.cluster.queues[TOPIC] if one.broker == queue.broker)
        end = self.cluster.range(queue).maximum
        if queue == last and all(self._is_done(queue, number) for number in range(end)):
            self.cluster.remove_queue(queue)
        else:
            asyncio.get_running_loop().call_later(20, self._remove_when_read, queue)

    async def _cut_off_name_server(self):
        self.cluster.has_routes = False
        later = self.random.choice([1, 20, 100])
        asyncio.get_running_loop().call_later(later, setattr, self.cluster, "has_routes", True)

    async def _become_quiet(self):
        """Wait until all messages are consumed, for five hours at most."""
        for one in self.members.values():
            one.network.loss = 0
        self.loss = 0
        for _ in range(60):
            if not self.members:
                await self._join()
            await asyncio.sleep(QUIET_S)
            if not self._left() and self.cluster.queues[TOPIC] == self.cluster.writable(TOPIC):
                break
        await asyncio.sleep(QUIET_S)

    def _check_commit(self, group, queue, offset):
        first = self.cluster.range(queue).minimum
        returned = {*self.cluster.sent_back}
        passed = [
            number
            for number in range(first, offset)
            if not self.processed[queue, number] and (queue, number) not in returned
        ]
        self._expect(not passed, f"{queue}: committed {offset}, but {passed} are not consumed")

    def _left(self):
        return [
            (queue, number)
            for queue in self.cluster.queues[TOPIC]
            for number in range(self.cluster.range(queue).maximum)
            if not self._is_done(queue, number)
        ]

    def _check(self):
        assert not self.faults, f"{self.faults}, after {self.events}"
        assert not self._left(), f"not consumed: {self._left()}, after {self.events}"
        owners = Counter(queue for one in self.members.values() for queue in one.core.held)
        wanted = {*self.cluster.queues[TOPIC]}
        owned = {queue for queue in owners if queue.topic == TOPIC}
        assert owned == wanted, f"{wanted - owned} have no owner, {owned - wanted} do not exist"
        assert max(owners.values()) == 1, f"held twice: {owners}"

    def _is_done(self, queue, number):
        """Whether a message, or its last copy in the retry topic, is consumed or a dead letter."""
        if self.processed[queue, number]:
            return True
        stored = self.cluster.messages
        body = stored[queue][number].body
        retries = [
            (other, one.queue_offset)
            for other, messages in stored.items()
            for one in messages
            if one.body == body and other.topic.startswith("%RETRY%")
        ]
        is_dead = any(one.body == body for one in self.cluster.dead_letters)
        return is_dead or any(self.processed[place] for place in retries)
