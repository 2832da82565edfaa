"""The promises of a store at a given moment, recorded by the process that uses the store."""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Promises:
    """Queues are (topic, queue id). Every change is a method call, so that it can be replayed."""

    created: bool = False
    topics: dict = field(default_factory=dict)
    """Name → possible numbers of queues; includes False while the topic may be missing."""
    deleted: set = field(default_factory=set)
    doubtful: set = field(default_factory=set)
    """Topics being deleted, including those whose deletion a power loss interrupted."""
    sent: dict = field(default_factory=lambda: defaultdict(dict))
    """Queue → offset → body, of every append that has begun."""
    first: dict = field(default_factory=dict)
    """Queue → the least and the greatest possible start offset."""
    seen: dict = field(default_factory=dict)
    durable: dict = field(default_factory=dict)
    whole: list = field(default_factory=list)
    """Queue → (first, end) of each batch that must exist entirely or not at all."""
    batches: list = field(default_factory=list)
    """(number, bounds as in `whole`) of each batch that a sink has begun to publish."""
    published: int = -1
    """The last batch whose publication has returned."""
    epoch: int = 0
    groups: dict = field(default_factory=dict)
    """(Topic, group) → the possible committed offsets, each as queue id → offset; {} for none."""
    forgotten: set = field(default_factory=set)
    """Groups whose deletion is durable."""
    snapshot: dict = field(default_factory=dict)
    """Queue → (first offset, bodies): the content of a snapshot, if it exists."""
    snapshot_is_there: bool = False
    watchers: list = field(default_factory=list)
    """(epoch, the end offsets that readers saw, the minimum of the ends since)."""

    def is_offered(self, queue, offset, bodies):
        for number, body in enumerate(bodies):
            self.sent[queue][offset + number] = body

    def is_offered_whole(self, bounds):
        self.whole.append(bounds)

    def is_offered_once(self, number, bounds):
        self.batches.append((number, bounds))

    def is_published(self, number):
        self.published = number

    def is_seen(self, ends):
        self.seen.update(ends)

    def is_durable(self):
        self.durable = dict(self.seen)

    def is_recovered(self, epoch, ends):
        """Record a recovery: existing messages are durable, and missing messages never reappear."""
        self.created = True
        self.watchers = [
            (then, seen, {queue: min(end, least.get(queue, end)) for queue, end in ends.items()})
            for then, seen, least in [*self.watchers, (self.epoch, dict(self.seen), {})]
        ]
        self.epoch, self.seen, self.durable = epoch, dict(ends), dict(ends)
        self.whole = [bounds for bounds in self.whole if _is_there(bounds, ends)]
        self.batches = [one for one in self.batches if _is_there(one[1], ends)]
        for queue, rows in self.sent.items():
            for offset in [one for one in rows if one >= ends.get(queue, 0)]:
                del rows[offset]

    def may_clean(self):
        self.first = {
            queue: (low, self.seen.get(queue, high)) for queue, (low, high) in self.first.items()
        }

    def is_cleaned(self, minima):
        self.first = {queue: (minimum, minimum) for queue, minimum in minima.items()}

    def topic_is_offered(self, topic, queues):
        self.deleted.discard(topic)
        self.topics[topic] = [*self.topics.get(topic, [False]), queues]

    def topic_is_made(self, topic, queues, minima):
        self.topics[topic] = [queues]
        self.doubtful.discard(topic)
        for queue, minimum in minima.items():
            if queue[0] == topic:
                self.first.setdefault(queue, (minimum, minimum))

    def topic_is_missing(self, topic):
        del self.topics[topic]

    def topic_may_go(self, topic):
        self.doubtful.add(topic)

    def topic_is_gone(self, topic):
        self.deleted.add(topic)
        del self.topics[topic]
        for table in (self.first, self.durable, self.seen):
            for queue in [queue for queue in table if queue[0] == topic]:
                del table[queue]

    def offsets_are_offered(self, key, offsets):
        self.forgotten.discard(key[1])
        self.groups[key] = [*self.groups.get(key, [{}]), offsets]

    def offsets_are_kept(self, key):
        """Record that the offset committed last is durable."""
        self.groups[key] = self.groups[key][-1:]

    def group_is_forgotten(self, group):
        self.forgotten.add(group)

    def snapshot_is_begun(self):
        for queue, end in self.seen.items():
            first = self.first[queue][0]
            self.snapshot[queue] = first, [self.sent[queue][at] for at in range(first, end)]

    def snapshot_is_made(self):
        self.snapshot_is_there = True


def _is_there(bounds, ends):
    return all(end <= ends.get(queue, 0) for queue, (_, end) in bounds.items())
