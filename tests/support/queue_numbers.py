"""A source whose queues consist only of offsets, for tests of the planner."""

from bisect import bisect_left
from dataclasses import dataclass

from pyrocket import ByteSpan, MessageQueue, QueueOffsets, ReadPlan, SourceIdentity, TopicConfig
from pyrocket.errors import TopicNotFoundError
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.stream_planner import next_offset, planned_ranges

from support.offsets import BROKER, at, through_spark


@dataclass(frozen=True)
class Named:
    """The target of a simulated source."""

    name: str

    def describe(self):
        return f"simulated:{self.name}"


class Numbers:
    """A source whose queues consist only of offsets; a test can extend, shorten and delete queues.

    times: (topic, queue id) → the store times of the messages, starting at offset 0.
    commits: (group, topic) → queue → offset.
    left: Queues that still have messages outside their bounds.
    The log is never restored from an older copy; log marks are tested with real stores.
    """

    def __init__(self, **topics):
        self.uuid, self.epoch, self.broker = "uuid-1", 0, BROKER
        self.known = {
            name: {queue: QueueOffsets(*limits) for queue, limits in queues.items()}
            for name, queues in topics.items()
        }
        self.ids = {name: f"id-{name}" for name in topics}
        self.perm, self.perms = 6, {}
        self.interrupted = False
        self.cuts, self.left, self.times, self.commits = {}, {}, {}, {}
        self.clock = 1_000_000

    @property
    def target(self):
        return Named(self.broker)

    def plan(self, topics):
        ((broker, known),) = self.identities().items()
        existing = self.topics()
        bounds = self.bounds([topic for topic in topics if topic in existing])
        return ReadPlan(broker, known.store, known.epoch, "", [*existing.values()], bounds)

    def version(self):
        return self.broker, 0

    def wait_for_change(self, version, seconds):
        """Return False: nothing notifies this source."""
        return False

    def deliver_due(self):
        return False

    def by_broker(self, expected=()):
        return {self.broker: self}

    def identities(self):
        return {self.broker: SourceIdentity(store=self.uuid, epoch=self.epoch)}

    def is_recovering(self):
        return self.interrupted

    def topics(self):
        return {
            n: TopicConfig(n, 4, 4, self.perms.get(n, self.perm), topic_id=self.ids[n])
            for n in self.known
        }

    def topic(self, name):
        raise TopicNotFoundError(f"there is no topic {name!r}.")

    def bounds(self, topics):
        return {
            at(t, q, self.broker): limits for t in topics for q, limits in self.known[t].items()
        }

    def queue_bounds(self, queues):
        return {queue: self.limits(queue) for queue in queues}

    def limits(self, queue):
        limits = self.known.get(queue.topic, {}).get(queue.queue_id)
        return limits or self.left.get((queue.topic, queue.queue_id), QueueOffsets(0, 0))

    def retired(self, topics):
        return {}

    def offsets_at(self, times_ms):
        return {queue: self._offset_at(queue, ms) for queue, ms in times_ms.items()}

    def _offset_at(self, queue, timestamp_ms):
        limits = self.known[queue.topic][queue.queue_id]
        times = self.times.get((queue.topic, queue.queue_id), [0] * limits.maximum)
        return bisect_left(times, timestamp_ms, lo=limits.minimum)

    def now_ms(self):
        return self.clock

    def mark(self, offsets):
        return None

    def holds(self, mark):
        return False

    def truncations(self, epochs, queues):
        cut = {at(*key, self.broker): offset for key, offset in self.cuts.items()}
        is_older = epochs.get(self.broker, 0) < self.epoch
        return {queue: cut[queue] for queue in queues if queue in cut} if is_older else {}

    def sizes(self, ranges):
        return [ByteSpan(0, 100 * each.rows, 100 * each.rows) for each in ranges]

    def committed(self, group, topics=None):
        return {
            at(topic, queue, self.broker): offset
            for (whose, topic), queues in self.commits.items()
            for queue, offset in queues.items()
            if whose == group and (topics is None or topic in topics)
        }

    def grow(self, topic, queue, maximum, minimum=0):
        self.known.setdefault(topic, {})[queue] = QueueOffsets(minimum, maximum)
        self.ids.setdefault(topic, f"id-{topic}")

    def delete(self, topic, ended=None):
        """Delete a topic; `ended` maps its queues to their end offsets."""
        for queue, limits in self.known.pop(topic).items():
            end = limits.maximum if ended is None else ended
            self.left[topic, queue] = QueueOffsets(end, end)
        del self.ids[topic]

    def step(self, start, asked=None, **limits):
        """Plan one micro-batch as Spark does; return its end and the ranges of its tasks."""
        end = next_offset(
            self,
            asked or ReadOptions(path="/s", subscription=SubscribedTopics(("t",))),
            start,
            **limits,
        )
        return (start, []) if end is None else (through_spark(end), self.read(start, end))

    @staticmethod
    def read(start, end):
        """Return the messages that the tasks of a micro-batch read."""
        ranges = sorted(planned_ranges(start, through_spark(end)))
        return [(*each_place(r.queue), r.start, r.end) for r in ranges if r.rows]


def each_place(queue: MessageQueue):
    return queue.topic, queue.queue_id
