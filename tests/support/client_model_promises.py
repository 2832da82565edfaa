"""What must hold in all schedules of `client_model`, and the record of what has happened.

- From the group's first start on, every message is consumed or becomes a dead letter; in a
  broadcasting group every member consumes it, or fails to once.
- An orderly listener has messages of a queue only while its member has the queue's lock, and in
  order: a message comes after a later one only if the queue has a new owner, which starts at the
  committed offset.
- A commit passes no message that is not consumed, and nothing is committed before something is.
- A message becomes a dead letter only after all its attempts.
- After a quiet time each queue has one owner, and its offset is committed.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from pyrocket.client.consume_from import ConsumeFrom

from support.simulated_brokers import LOCK_S, Observer
from support.simulated_loop import START_S

GROUP = "billing"
RETRY_TOPIC = f"%RETRY%{GROUP}"


@dataclass(frozen=True)
class Sent:
    """A message; `number` counts all messages."""

    number: int
    queue: object
    queue_offset: int
    store_ms: int


@dataclass
class Lock:
    """A lock on a queue. `committed` is the group's offset when its owner got it."""

    owner: str
    renewed_s: float
    committed: int


class Promises(Observer):
    """Records what brokers and listeners do, and each broken promise in `faults`."""

    def __init__(self, cluster, *, orderly, broadcasting, consume_from, timestamp_ms, attempts):
        """`attempts` is the number of deliveries after which a message is a dead letter."""
        self.cluster, self.orderly, self.broadcasting = cluster, orderly, broadcasting
        self.consume_from, self.timestamp_ms = consume_from, timestamp_ms
        self.attempts = attempts
        self.faults = []
        self.sent = {}
        self.done = defaultdict(set)  # Member, or "" for the group → bodies.
        self._troubles, self._is_lossy = [], False
        self._first, self._marks = {}, {}
        self._deliveries, self._listening = Counter(), Counter()
        self._consumed = set()
        self._locks, self._running = {}, defaultdict(set)
        self._runs, self._positions, self._starts = {}, {}, {}
        self._checked = defaultdict(int)

    def expect(self, holds, fault):
        """Record a broken promise; consumers would catch an exception."""
        if not holds:
            self.faults.append(f"{_now_s() - START_S:.1f} s: {fault}")

    def trouble(self, seconds):
        """Note that some calls may fail in the next seconds."""
        self._troubles.append(_now_s() + seconds)

    def trouble_for_ever(self):
        """Note that calls may fail at any time."""
        self._is_lossy = True

    def is_calm_since(self, begin_s):
        """Whether no call was lost since a time."""
        return not self._is_lossy and all(end < begin_s for end in self._troubles)

    @property
    def is_in_trouble(self):
        """Whether something that was interrupted is still to continue."""
        return any(end > _now_s() for end in self._troubles)

    def send(self, queue):
        """Append a message to a queue; its body is its number."""
        body = b"%d" % len(self.sent)
        offset = self.cluster.range(queue).maximum
        self.cluster.append(queue, body)
        store_ms = self.cluster.brokers[queue.broker].last_store_ms
        self.sent[body] = Sent(len(self.sent), queue, offset, store_ms)

    # Where the group starts.

    def heard(self, broker, client_id, heartbeat):
        for topic in heartbeat.consumers[0].subscriptions:
            place = self._who(client_id), broker, topic
            self._marks.setdefault(place, (len(self.sent), _now_s()))

    def joined(self, broker, heartbeat):
        for topic in heartbeat.consumers[0].subscriptions:
            place = self._who(heartbeat.client_id), topic
            self._first.setdefault(place, (len(self.sent), _now_s()))

    def _who(self, member):
        return member if self.broadcasting else ""

    def is_owed(self, sent, member=""):
        """Whether the group, or a member of a broadcasting group, has to consume a message."""
        if self.consume_from is ConsumeFrom.FIRST:
            return True
        if self.consume_from is ConsumeFrom.TIMESTAMP:
            return sent.store_ms >= self.timestamp_ms
        who, topic = self._who(member), sent.queue.topic
        number, _ = self._marks.get((who, sent.queue.broker, topic), (float("inf"), None))
        if sent.number >= number:
            return True
        # At a broker that the group met later, it starts when it met the first one.
        number, since_s = self._first.get((who, topic), (float("inf"), None))
        return sent.number >= number and self.is_calm_since(since_s)

    # What listeners get.

    def began(self, member, queue, messages):
        """A listener gets messages."""
        self._deliveries.update(message.body for message in messages)
        self._listening[member] += 1
        if self.orderly:
            if not self.broadcasting:
                self._check_lock(member, queue)
            self._check_order(member, queue, [message.queue_offset for message in messages])
            self._running[queue].add(member)

    def ended(self, member, queue, messages, consumed):
        """A listener has consumed the first messages of those that it got."""
        self._listening[member] -= 1
        self._running[queue].discard(member)
        for message in messages[:consumed]:
            self._check_gap(member, queue, message.queue_offset)
            self.done[self._who(member)].add(message.body)
            self._consumed.add((queue, message.queue_offset))
        # Some between them may have been sent back.
        position = messages[consumed - 1].queue_offset + 1 if consumed else messages[0].queue_offset
        self._positions[member, queue] = position
        if self._runs.get(queue, ("",))[0] == member:
            self._runs[queue] = member, position

    def failed(self, member, messages):
        """A listener has failed; a broadcasting group does not consume the messages again."""
        if self.broadcasting:
            self.done[member].update(message.body for message in messages)

    def gone(self, member):
        """A member was killed."""
        del self._listening[member]
        for running in self._running.values():
            running.discard(member)

    def _check_gap(self, member, queue, offset):
        if self.orderly and queue.topic != RETRY_TOPIC:
            missing = self._unconsumed(queue, offset, self._who(member))
            self.expect(not missing, f"{_at(queue)}: {offset} is consumed before {missing}")

    def _unconsumed(self, queue, before, who):
        """Return the offsets of owed messages that are neither done nor sent back."""
        first, sent_back = self.cluster.range(queue).minimum, {*self.cluster.sent_back}
        return [
            one.queue_offset
            for body, one in self.sent.items()
            if one.queue == queue
            and first <= one.queue_offset < before
            and body not in self.done[who]
            and (queue, one.queue_offset) not in sent_back
            and self.is_owed(one, who)
        ]

    # Locks and order.

    def locked(self, client_id, queues):
        for queue in queues:
            known = self._locks.get(queue)
            is_renewed = known is not None and known.owner == client_id
            if not is_renewed:
                if known is not None and _now_s() - known.renewed_s >= LOCK_S:
                    self._running[queue].discard(known.owner)  # A listener can't be interrupted.
                committed = self.cluster.committed_of(GROUP, queue) or 0
                self._locks[queue] = Lock(client_id, _now_s(), committed)
            elif _now_s() - known.renewed_s >= LOCK_S:
                known.committed = self.cluster.committed_of(GROUP, queue) or 0
            self._locks[queue].renewed_s = _now_s()

    def unlocked(self, client_id, queues):
        for queue in queues:
            if (known := self._locks.get(queue)) is not None and known.owner == client_id:
                known.renewed_s = _now_s() - LOCK_S
                if client_id in self._running[queue]:
                    self.expect(
                        False,
                        f"{_at(queue)}: {client_id} unlocks it before its listener ends",
                    )

    def restarted(self, broker):
        for queue, lock in self._locks.items():
            if queue.broker == broker:
                lock.renewed_s = _now_s()

    def started(self, client_id, queue, offset):
        if offset is not None:
            self._starts[client_id, queue] = offset

    def _check_lock(self, member, queue):
        lock = self._locks.get(queue)
        has_lock = lock is not None and lock.owner == member and _now_s() - lock.renewed_s < LOCK_S
        self.expect(has_lock, f"{_at(queue)}: {member} gets messages without its lock: {lock}")
        others = self._running[queue] - {member}
        self.expect(
            not others,
            f"{_at(queue)}: {member} gets messages at the same time as {others}",
        )

    def _check_order(self, member, queue, offsets):
        first = offsets[0]
        self.expect(
            all(self._is_next(queue, one + 1, two) for one, two in pairwise(offsets)),
            f"{_at(queue)}: a batch has the offsets {offsets}",
        )
        owner, position = self._runs.get(queue, ("", None))
        own = self._positions.get((member, queue))
        lock = self._locks.get(queue)
        is_right = (
            (owner == member and self._is_next(queue, position, first))
            or self._is_next(queue, self._starts.get((member, queue)), first)
            or (
                own is not None
                and lock is not None
                and self._is_next(queue, max(own, lock.committed), first)
            )
        )
        self.expect(
            is_right or not owner,
            f"{_at(queue)}: {member} gets {first} after {owner} got those before {position};"
            f" it started at {self._starts.get((member, queue))}, and the lock is {lock}",
        )
        self._starts.pop((member, queue), None)
        self._runs[queue], self._positions[member, queue] = (member, first), first

    def _is_next(self, queue, position, offset):
        """Whether all offsets from a position to an offset were deleted or sent back."""
        if position is None:
            return False
        sent_back, first = {*self.cluster.sent_back}, self.cluster.range(queue).minimum
        return position <= offset and all(
            one < first or (queue, one) in sent_back for one in range(position, offset)
        )

    # Commits.

    def committed(self, group, queue, offset):
        first = self.cluster.range(queue).minimum
        has_consumed = any((queue, number) in self._consumed for number in range(offset))
        sent_back = any(place == queue for place, _ in self.cluster.sent_back)
        self.expect(
            has_consumed or sent_back or offset <= first,
            f"{_at(queue)}: {offset} is committed before anything is consumed",
        )
        passed = self._unconsumed(queue, offset, "")
        self.expect(
            not passed,
            f"{_at(queue)}: {offset} is committed, but {passed} are not consumed",
        )

    # The end.

    def deliveries(self):
        """Return how many messages listeners have got."""
        return self._deliveries.total()

    def listening(self):
        """Return the members whose listeners have messages."""
        return sorted(+self._listening)

    def left(self, member=""):
        """Return the owed messages that are not done."""
        dead = {message.body for message in self.cluster.dead_letters}
        bounds = {
            queue: self.cluster.range(queue)
            for queues in self.cluster.queues.values()
            for queue in queues
        }
        return [
            (one.queue, one.queue_offset)
            for body, one in self.sent.items()
            if one.queue in bounds
            and one.queue_offset >= bounds[one.queue].minimum
            and body not in self.done[member]
            and body not in dead
            and self.is_owed(one, member)
        ]

    def delivered_at(self, broker):
        """Whether all messages of one broker are consumed or were sent back."""
        sent_back = {*self.cluster.sent_back}
        return all(queue.broker != broker or (queue, at) in sent_back for queue, at in self.left())

    def check_dead_letters(self):
        for message in self.cluster.dead_letters:
            count = self._deliveries[message.body]
            self.expect(
                count >= self.attempts,
                f"{message.body} is a dead letter after {count} of {self.attempts} attempts",
            )

    def check_committed(self, queue, offset, member=""):
        """Check the offset that is stored for a queue after a quiet time."""
        owed = [one for one in self.sent.values() if one.queue == queue]
        end = self.cluster.range(queue).maximum
        is_owed = any(
            self.is_owed(one, member) and one.queue_offset >= self.cluster.range(queue).minimum
            for one in owed
        )
        self.expect(
            not is_owed or offset == end,
            f"{_at(queue)}: {offset} is stored, but {end} is consumed",
        )


def _at(queue):
    return f"{queue} of {queue.broker}"


def _now_s():
    return asyncio.get_running_loop().time()
