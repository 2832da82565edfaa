"""Immutable maps from queue to number: start and end offsets, and counts per queue. Pure."""

from collections.abc import Container, Mapping
from typing import Any

from pyrocket import MessageQueue

from pyspark_pyrocket.transport.interface import Bounds


class Offsets(dict[MessageQueue, int]):
    """A map from queue to number that keeps the order of the queues.

    Treated as immutable once it is complete. Two maps are equal if they have the same numbers for
    the same queues.
    """

    @classmethod
    def starts(cls, bounds: Bounds) -> "Offsets":
        """Return the first offset of each queue."""
        return cls({queue: limits.minimum for queue, limits in bounds.items()})

    @classmethod
    def ends(cls, bounds: Bounds) -> "Offsets":
        """Return the end of each queue: one past its last message."""
        return cls({queue: limits.maximum for queue, limits in bounds.items()})

    @classmethod
    def from_json(cls, topics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> "Offsets":
        """Return the numbers from a value that `to_json` returned."""
        return cls(
            {
                MessageQueue(topic, broker, int(queue_id)): int(value)
                for topic, brokers in topics.items()
                for broker, queues in brokers.items()
                for queue_id, value in queues.items()
            }
        )

    def to_json(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return topic → broker → queue id → number, sorted: equal offsets give equal text."""
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, broker, queue_id), value in sorted(self.items()):
            topics.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = int(value)
        return topics

    def by_topic(self) -> dict[str, dict[int, int]]:
        """Return topic → queue id → number, as users see it."""
        topics: dict[str, dict[int, int]] = {}
        for queue, value in self.items():
            topics.setdefault(queue.topic, {})[queue.queue_id] = value
        return topics

    @property
    def topics(self) -> tuple[str, ...]:
        return topics_of(self)

    def of_topics(self, topics: Container[str]) -> "Offsets":
        return Offsets({queue: value for queue, value in self.items() if queue.topic in topics})

    def of_broker(self, broker: str) -> "Offsets":
        return Offsets({queue: value for queue, value in self.items() if queue.broker == broker})

    def merge(self, newer: Mapping[MessageQueue, int]) -> "Offsets":
        """Return the numbers of both maps; those of `newer` take precedence."""
        return Offsets({**self, **newer})

    def plus(self, other: Mapping[MessageQueue, int]) -> "Offsets":
        """Return the sum for each queue; a missing number counts as 0."""
        return self.merge({queue: self.get(queue, 0) + value for queue, value in other.items()})

    def minus(self, start: Mapping[MessageQueue, int]) -> "Offsets":
        """Return the positive distances from `start`; a queue that `start` lacks is at 0 there."""
        distances = {queue: value - start.get(queue, 0) for queue, value in self.items()}
        return Offsets({queue: rows for queue, rows in distances.items() if rows > 0})

    def clamp(
        self, lowest: Mapping[MessageQueue, int], highest: Mapping[MessageQueue, int]
    ) -> "Offsets":
        """Return each number limited to `highest` (0 if missing), but not below `lowest`."""
        return Offsets(
            {
                queue: max(lowest[queue], min(value, highest.get(queue, 0)))
                for queue, value in self.items()
            }
        )

    def changed_from(self, older: Mapping[MessageQueue, int]) -> "Offsets":
        """Return the numbers that differ from the older ones, or are missing there."""
        return Offsets({queue: at for queue, at in self.items() if older.get(queue) != at})

    def total(self) -> int:
        return sum(self.values())


def topics_of(queues: Mapping[MessageQueue, object]) -> tuple[str, ...]:
    """Return the topics of some queues, each once, in their order."""
    return tuple(dict.fromkeys(queue.topic for queue in queues))
