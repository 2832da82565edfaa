"""A simple model of consumer groups, and random schedules that compare a `Pop` with the model."""

import random
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from pyrocket import Message
from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import PopSettings
from pyrocket.store import sender_of
from pyrocket.values.admin import Backoff

INVISIBLE_MS = 10_000
RETRIES = 4
SETTINGS = PopSettings(first_attempts=2, max_batch=5, commit_ms=5_000, snapshot_ms=20_000)


class Killed(BaseException):
    """Raised where the simulated process is killed."""


@dataclass
class Copy:
    """A message as the clients of one group know it.

    attempt: The attempt of the last delivery. until: The end of its invisible time. ended: Whether
    it is certainly acked or a dead letter. maybe: Whether it may be acked or a dead letter, because
    a reply was lost. vague: Whether it may be visible at another time, because a reply was lost.
    twice: Whether the message and a retry of it may both be delivered, because the group was reset.
    """

    body: bytes
    key: str | None
    place: tuple[int, int]
    deliveries: int = 0
    attempt: int = 0
    until: int = 0
    handle: str = ""
    ended: bool = False
    maybe: bool = False
    vague: bool = False
    twice: bool = False

    def start_again(self):
        """Forget all deliveries."""
        self.deliveries = self.attempt = self.until = 0
        self.handle, self.ended, self.maybe, self.vague = "", False, False, False


@dataclass
class Client:
    """One group, with its copies of all messages in send order.

    committed: Queue id → all offsets that the group has committed.
    """

    name: str
    fifo: bool
    copies: dict[bytes, Copy] = field(default_factory=dict)
    committed: dict[int, set[int]] = field(default_factory=dict)

    def held(self):
        """Return the messages that a client could ack."""
        return [one for one in self.copies.values() if one.handle and not one.ended]

    def reset(self, queue_id, before, offset):
        """Continue at an offset: forget deliveries of later messages, or skip the messages before
        it.
        """
        for copy in self.copies.values():
            if copy.place[0] != queue_id or copy.place[1] < min(before, offset):
                continue
            copy.twice = not self.fifo  # FIFO groups have no retries.
            if offset < before:
                copy.start_again()
            elif copy.place[1] < offset:
                copy.ended = True


class Schedule:
    """Random operations on one topic with a normal and a FIFO group, with kills at random
    appends.
    """

    def __init__(self, store, clock, seed):
        self.store, self.clock, self.random = store, clock, random.Random(seed)
        self.topic = f"t{seed}"
        self.clients = [Client(f"g{seed}", fifo=False), Client(f"f{seed}", fifo=True)]
        self.sent = 0
        self.fuse = None
        store.topics.create(self.topic, read_queues=2, write_queues=2)
        for client in self.clients:
            store.groups.create(client.name)
            store.groups.update(
                client.name,
                fifo=client.fifo,
                retry_max_times=RETRIES,
                backoff=Backoff((1000, 2000, 3000)),
            )
        self.pop = Pop(store, self.append, SETTINGS)

    def append(self, records):
        """Append records. At the scheduled kill, raise Killed before or after the append."""
        if self.fuse is not None:
            self.fuse -= 1
        if self.fuse == 0:
            self.fuse = None
            if self.random.random() < 0.5:
                sender_of(self.store).append_received([records])
            raise Killed
        done = Future()
        (result,) = sender_of(self.store).append_received([records])
        done.set_result(result)
        return done

    def run(self, steps):
        """Execute a number of operations, then receive and ack all remaining messages."""
        doing = [
            *([self.send] * 3),
            *([self.receive] * 6),
            *([self.ack] * 4),
            *(self.nack, self.extend, self.forward, self.snapshot, self.light_fuse),
            *([self.wait] * 3),
            *([self.sweep] * 2),
            *(self.restart, self.kill, self.reset),
        ]
        for _ in range(steps):
            self.attempt(self.random.choice(doing))
        self.fuse = None
        self.drain()

    def attempt(self, operation):
        """Execute one operation; if the process dies, start the next process."""
        try:
            operation()
        except Killed:
            self.start()
        self.check_committed()

    def start(self):
        """Start the next process, which may also die."""
        self.pop = None
        while self.pop is None:
            with suppress(Killed):
                self.pop = Pop(self.store, self.append, SETTINGS)

    def send(self):
        for _ in range(self.random.randint(1, 4)):
            key = self.random.choice([None, "a", "b"])
            queue_id = {"a": 0, "b": 1}.get(key, self.random.randrange(2))
            body = b"%d" % self.sent
            self.sent += 1
            message = Message(topic=self.topic, body=body, queue_id=queue_id, sharding_key=key)
            result = self.store.append(message)
            for client in self.clients:
                copy = Copy(body, key, (queue_id, result.queue_offset))
                client.copies[body] = copy

    def receive(self, client=None):
        client = client or self.random.choice(self.clients)
        now, count = self.clock(), self.random.randint(1, 6)
        received = self.pop.receive(
            client.name, self.topic, max_messages=count, invisible_ms=INVISIBLE_MS
        )
        received.stored.result(0)
        batch = [one.message.body for one in received.messages]
        for one in received.messages:
            self.delivered(client, one, batch, now)
        return batch

    def delivered(self, client, one, batch, now):
        copy = client.copies[one.message.body]
        assert one.message.topic == self.topic
        copy.deliveries += 1
        assert one.attempt <= RETRIES + 1, copy
        if not copy.twice:
            assert not copy.ended, f"{copy} was acked"
            assert copy.until <= now, f"{copy} is invisible at {now}"
            assert one.attempt >= copy.deliveries, copy
            assert one.attempt > copy.attempt, copy
        if client.fifo and copy.key:
            self.check_order(client, copy, batch)
        copy.attempt, copy.until, copy.handle = one.attempt, now + INVISIBLE_MS, one.handle
        copy.ended = copy.maybe = copy.vague = False

    def check_order(self, client, copy, batch):
        """Check that all earlier messages with the same key have ended or are in the same batch."""
        for other in client.copies.values():
            if other is copy:
                return
            if other.key == copy.key and not (other.ended or other.maybe or other.body in batch):
                assert other.body in self.copies_in("%DLQ%", client), (other, copy)

    def pick(self, count):
        client = self.random.choice(self.clients)
        held = client.held()
        return client, self.random.sample(held, min(count, len(held)))

    def ack(self):
        client, copies = self.pick(self.random.randint(1, 4))
        if not copies:
            return
        now = self.clock()
        with Unsure(copies):
            done = self.pop.ack(client.name, self.topic, [one.handle for one in copies])
        for copy, valid in zip(copies, done.valid, strict=True):
            may_be_dead = client.fifo and copy.attempt > RETRIES
            known = not (copy.maybe or copy.vague or copy.twice or may_be_dead)
            assert valid == (now < copy.until) or not known, copy
            copy.ended = copy.ended or valid

    def forward(self):
        client, copies = self.pick(1)
        for copy in copies:
            with Unsure(copies):
                done = self.pop.forward_to_dlq(client.name, self.topic, copy.handle)
            copy.ended = done.valid[0]

    def nack(self):
        client, copies = self.pick(1)
        for copy in copies:
            until = self.clock() + self.random.choice([0, 2_000])
            with Unsure(copies, until):
                done = self.pop.change_invisible(
                    client.name, self.topic, copy.handle, until - self.clock()
                )
            if done.handle is not None:
                copy.handle, copy.until = done.handle, until

    def extend(self):
        client, copies = self.pick(2)
        if copies:
            until = self.clock() + 2 * INVISIBLE_MS
            with Unsure(copies, until):
                done = self.pop.extend(
                    client.name, self.topic, [one.handle for one in copies], until - self.clock()
                )
            for copy, valid in zip(copies, done.valid, strict=True):
                copy.until = until if valid else copy.until

    def snapshot(self):
        self.pop.snapshot()

    def sweep(self):
        self.pop.sweep()

    def wait(self):
        self.clock.now += self.random.choice([500, 3_000, INVISIBLE_MS])
        self.store.deliver_due()

    def light_fuse(self):
        self.fuse = self.random.randint(1, 6)

    def restart(self):
        self.pop.close()
        self.start()

    def kill(self):
        self.start()

    def reset(self):
        """Reset a group to an earlier committed offset, as a broker does."""
        client, queue_id = self.random.choice(self.clients), self.random.randrange(2)
        self.pop._commit()
        before = self.store.groups.committed(client.name, self.topic).get(queue_id)
        earlier = sorted(client.committed.get(queue_id, {before}) - {before})
        if before is None or not earlier:
            return
        offset = self.random.choice(earlier)
        self.store.groups.commit(client.name, self.topic, {queue_id: offset}, backwards=True)
        client.reset(queue_id, before, offset)
        self.random.choice([self.pop.sweep, self.start])()
        committed = self.pop.lag(client.name, self.topic)[self.topic, queue_id].committed
        assert committed == offset or offset < committed > before, (before, offset, committed)

    def drain(self):
        """Receive and ack all remaining messages; check that all are acked or dead letters."""
        for _ in range(40):
            self.clock.now += 2 * INVISIBLE_MS
            self.store.deliver_due()
            self.pop.sweep()
            for client in self.clients:
                while self.receive(client):
                    pass
                while held := [one for one in client.held() if self.clock() < one.until]:
                    done = self.pop.ack(client.name, self.topic, [one.handle for one in held])
                    assert all(done.valid)
                    for copy in held:
                        copy.ended = True
            if not any(self.left(client) or self.lag(client) for client in self.clients):
                break
        self.pop.snapshot()
        ends = {queue_id: has.maximum for queue_id, has in self.store.offsets(self.topic).items()}
        for client in self.clients:
            assert not self.left(client)
            committed = self.store.groups.committed(client.name, self.topic)
            expected = {queue_id: end for queue_id, end in ends.items() if end}
            assert committed == expected, (client.name, committed, expected)
            assert not self.lag(client)

    def lag(self, client):
        """Return the number of messages that the group has not acked."""
        return sum(one.lag for one in self.pop.lag(client.name, self.topic).values())

    def left(self, client):
        """Return the messages that are neither acked nor dead letters."""
        left = [one for one in client.copies.values() if not one.ended and not one.maybe]
        dead = self.copies_in("%DLQ%", client) if left else ()
        return [one for one in left if one.body not in dead]

    def check_committed(self):
        """Check that a consumer that starts at the committed offsets receives all unacked
        messages.
        """
        for client in self.clients:
            committed = self.store.groups.committed(client.name, self.topic)
            for queue_id, offset in committed.items():
                client.committed.setdefault(queue_id, set()).add(offset)
            passed = {
                copy.body
                for copy in client.copies.values()
                if not (copy.ended or copy.maybe)
                and copy.place[1] < committed.get(copy.place[0], 0)
            }
            if passed:
                moved = self.copies_in("%DLQ%", client) | self.copies_in("%RETRY%", client)
                assert passed <= moved | self.scheduled(client), "messages would be skipped"

    def copies_in(self, prefix, client):
        """Return the bodies in the group's topic with this prefix."""
        topic = prefix + client.name
        known = topic in self.store.topics.all()
        return {one.body for one in self.store.messages(topic)} if known else set()

    def scheduled(self, client):
        """Return the bodies of the group's retries, pending or delivered."""
        if "SCHEDULE_TOPIC_XXXX" not in self.store.topics.all():
            return set()
        return {
            one.body
            for one in self.store.messages("SCHEDULE_TOPIC_XXXX")
            if one.properties["REAL_TOPIC"] == "%RETRY%" + client.name
        }


class Unsure:
    """If the process dies in the block, record that the messages may have ended, or may be visible
    at another time.
    """

    def __init__(self, copies, until=None):
        self.copies, self.until = copies, until

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for copy in self.copies if kind is Killed else ():
            if self.until is None:
                copy.maybe = True
            else:
                copy.vague, copy.until = True, min(copy.until, self.until)
