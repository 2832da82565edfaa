"""Random schedules of a consumer group on a simulated clock, and what must hold in all of them.

Members join, leave, are killed, suspended and cut off; brokers restart, stop, hang and refuse
commits, and their clocks are set back; the name server is cut off; topics and queues come and go;
calls are delayed, lost and repeated; listeners are slow, some longer than the consume time-out, and
fail, as do the other functions of the application. The schedule depends only on its seed.

`client_model_steps` has the steps, `client_model_members` the members, and
`client_model_promises` what must hold.
"""

import asyncio
from collections import Counter
from datetime import datetime, timezone
from random import Random

from pyrocket.client.consume_from import ConsumeFrom
from pyrocket.values.consuming import MessageModel, Subscription

from support.client_model_members import Running
from support.client_model_promises import GROUP, RETRY_TOPIC, Promises
from support.client_model_steps import Steps
from support.simulated_loop import START_S
from support.simulated_processes import Processes
from support.store_brokers import Brokers

ROUND_S = 50
HOPELESS = 160
"""The rounds without any progress after which a schedule has failed: more than the longest delay of
a retry, two hours.
"""

QUIET_S = 250
"""More than the time after which a member or a lock expires, and two rebalances."""

HANG_S = 120
"""More than the time of some retries and a rebalance."""

KINDS = ["concurrent", "orderly", "broadcasting"]


class Schedule:
    """One schedule. `run` raises AssertionError if a promise does not hold.

    Attributes:
        members: Those that have neither left nor been killed, by name.
        files: The offsets of all members of a broadcasting group, by name.
        failing: The share of calls in which listeners fail.
        callbacks_fail: Whether the application's functions raise.
    """

    running = Running

    def __init__(self, seed, kind, folder):
        """The brokers have their stores in `folder`."""
        random = self.random = Random(f"{seed} {kind}")
        self.orderly, self.broadcasting = kind == "orderly", kind == "broadcasting"
        self.loss = random.choice([0, 0, 0.02, 0.1])
        self.max_delay_s = random.choice([0.01, 0.5, 1.4])
        self._listener_s = random.choice([[0, 0.01, 0.5, 5], [0, 0.01, 0.5, 5], [1, 25, 90], [184]])
        self._longest_s = random.choice([0, 0, 1800])
        self.failing = random.choice([0.1, 0.1, 0.5])
        self.topics = ["orders", "payments"]
        existing = {t: random.randint(1, 4) for t in self.topics if random.random() < 0.7}
        self.cluster = Brokers(folder, ["a", "b"][: random.choice([1, 2])], existing)
        self.members, self.files, self.callbacks_fail = {}, {}, False
        most = random.choice([-1, 2])
        self.settings = {
            "subscriptions": {topic: Subscription() for topic in self.topics},
            "consume_from": random.choice([*ConsumeFrom, ConsumeFrom.LAST]),
            "consume_timestamp": datetime.fromtimestamp(
                START_S + random.choice([-60, 5, 30]), timezone.utc
            ),
            "message_model": MessageModel.BROADCASTING
            if self.broadcasting
            else MessageModel.CLUSTERING,
            "orderly": self.orderly,
            "missing_topic": "wait",
            "max_reconsume_times": most,
            "pull_threshold_for_queue": random.choice([1, 4, 1000, 1000]),
        }
        self.processes = Processes()
        self.cluster.loop = self.processes.home
        self.promises = self.cluster.observer = Promises(
            self.cluster,
            orderly=self.orderly,
            broadcasting=self.broadcasting,
            consume_from=self.settings["consume_from"],
            timestamp_ms=int(1000 * self.settings["consume_timestamp"].timestamp()),
            attempts=1 + (16 if most < 0 else most),
        )
        if self.loss:
            self.promises.trouble_for_ever()
        is_slow = self._longest_s or self.failing > 0.1
        self._is_fast = max(self._listener_s) <= 5 and not is_slow
        self._steps = Steps(self)
        self.events = []

    def now_s(self):
        return self.processes.now_s

    def listener_s(self, random):
        """Return how long a listener takes."""
        if self._longest_s and random.random() < 0.02:
            longest_s, self._longest_s = self._longest_s, 0
            return longest_s
        return random.choice(self._listener_s)

    def run(self):
        self.processes.run(self._main())

    async def _main(self):
        if self.random.random() < 0.7:
            self._take(self._steps.send)
        self._take(self._steps.join)
        for _ in range(self.random.randint(4, 16)):
            await asyncio.sleep(self.random.choice([0, 0.1, 1, 5, 30]))
            self._take(self.random.choice(self._steps.all()))
        await self._become_quiet()
        self._check()

    def _take(self, step):
        self.events.append((round(self.now_s() - START_S, 1), step.__name__))
        step()

    async def _become_quiet(self):
        """Wait until all messages are consumed, or none was delivered for longer than two hours."""
        self.loss = 0
        left, rounds, delivered = ["unknown"], 0, 0
        while rounds < HOPELESS and (left or self.promises.is_in_trouble):
            for one in self.members.values():
                one.network.loss = 0
            if self._missing():
                self._take(self._steps.join_again)
            await asyncio.sleep(ROUND_S)
            before, left = (left, delivered), self._unfinished()
            delivered = self.promises.deliveries()
            rounds = rounds + 1 if (left, delivered) == before else 0
        await asyncio.sleep(QUIET_S)
        if not left and self._is_fast and len(self.cluster.brokers) == 2:
            await self._hang_one_broker()
            await asyncio.sleep(QUIET_S)

    async def _hang_one_broker(self):
        """Check that a broker without an answer stops neither the other one nor a start."""
        silent, other = self.random.sample(sorted(self.cluster.brokers), 2)
        self._steps.hang_for(silent, 2 * HANG_S)
        self.events.append((round(self.now_s() - START_S, 1), f"{silent} hangs"))
        await asyncio.sleep(self.random.choice([0, 10]))
        for topic in self.topics:
            for queue in self.cluster.writable(topic):
                if queue.broker == other:
                    self.promises.send(queue)
        new = self._steps.join() if self.random.random() < 0.5 else None
        await asyncio.sleep(HANG_S)
        if not self.broadcasting:
            is_delivered = self.promises.delivered_at(other)
            self.promises.expect(is_delivered, f"messages at {other} wait while {silent} hangs")
        if new in self.members:
            self.promises.expect(
                self.members[new].has_started, f"{new} does not start while {silent} hangs"
            )

    def left(self):
        """Return the messages that are not consumed yet."""
        members = self.files if self.broadcasting else [""]
        return [place for one in members for place in self.promises.left(one)]

    def _unfinished(self):
        """Return what a quiet group still has to do."""
        return [*self.left(), *self.promises.listening(), *self._closed(), *self._missing()]

    def _missing(self):
        """Return the members of a broadcasting group that do not run; one of another group."""
        missing = sorted(self.files.keys() - self.members.keys())
        return missing if self.members else missing or ["a member"]

    def _closed(self):
        """Return the queues that are being removed."""
        there = [topic for topic in self.topics if topic in self.cluster.queues]
        return [t for t in there if [*self.cluster.queues[t]] != self.cluster.writable(t)]

    def _check(self):
        left = self.left()
        self.promises.expect(not left, f"not consumed: {left[:5]} and others, {len(left)} in all")
        self.promises.check_dead_letters()
        self._check_owners()
        for one in self.members.values():
            one.check_tasks()
        faults = self.promises.faults
        assert not faults, f"{faults[:5]} of {len(faults)}, after {self.events}"

    def _check_owners(self):
        wanted = {
            queue
            for topic in [*self.topics, RETRY_TOPIC]
            if topic != RETRY_TOPIC or not self.broadcasting
            for queue in self.cluster.queues.get(topic, ())
        }
        owners = Counter(queue for one in self.members.values() for queue in one.core.held)
        each = len(self.members) if self.broadcasting else 1
        for queue in sorted(wanted | owners.keys()):
            expected = each if queue in wanted else 0
            self.promises.expect(
                owners[queue] == expected,
                f"{queue} of {queue.broker} has {owners[queue]} owners, not {expected}",
            )
        for queue in sorted(wanted):
            if not self.broadcasting:
                self.promises.check_committed(queue, self.cluster.committed_of(GROUP, queue))
            for name, file in self.files.items():
                self.promises.check_committed(queue, file.offsets.get(queue), name)
