"""The topics, the ranges of their queues and the offsets of consumer groups at one broker."""

import math
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyrocket.errors import GroupNotFoundError, TransportError
from pyrocket.formats.system_topics import retry_topic
from pyrocket.remoting.calls import ResponseCode, ServerCall
from pyrocket.remoting.cluster import RocketMQCluster, repeated
from pyrocket.remoting.requests import (
    READER_GROUP,
    commit,
    committed,
    highest_offset,
    lowest_offset,
    pull,
    topic_offsets,
    write_group,
    write_topic,
)
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import LogMark, MessageQueue, QueueOffsets

if TYPE_CHECKING:
    from typing_extensions import Self

TopicBounds = Mapping[str, Mapping[int, QueueOffsets] | None]
"""Topic → queue id → range; None for a topic that a broker does not have."""

QueuePlace = tuple[MessageQueue, int]
"""A queue and an offset."""


class Sample(NamedTuple):
    """The last messages before an offset.

    Attributes:
        mean: Their mean size.
        mark: That of the newest one; None if there is none.
        end: The offset after the newest one: a broker sends few large messages at once.
    """

    mean: int
    mark: LogMark | None
    end: int


_Value = TypeVar("_Value")


NO_LOOK: tuple[float, TopicBounds] = -math.inf, {}


@dataclass
class _Memory:
    """What a source and its copies with other deadlines remember.

    Attributes:
        planned: The topics of the last plan.
        look: The last look for new messages, until a plan uses it, and its time on the monotonic
            clock.
        samples: The samples of the last plans.
    """

    planned: Collection[str]
    look: tuple[float, TopicBounds] = NO_LOOK
    samples: dict[QueuePlace, Sample] = field(default_factory=dict)


class TopicsOfBroker:
    """Calls one broker. Safe to share between threads.

    Whether a topic is gone is only what the broker says: a route may be missing for other reasons.
    """

    def __init__(
        self,
        cluster: RocketMQCluster,
        broker: str,
        topics: Collection[str],
        seconds: float = 30.0,
        group: str = "",
    ) -> None:
        """Read `topics`, by default as READER_GROUP; `seconds` is the deadline of a call."""
        self.cluster, self.broker, self.seconds = cluster, broker, seconds
        self._group, self._read = group or READER_GROUP, tuple(topics)
        self._memory = _Memory(self._read)

    def within(self, seconds: float, *, lock: float | None = None) -> "Self":
        """Return a source that shares everything with this one, and has another deadline."""
        limited = copy(self)
        limited.seconds = seconds
        return limited

    def _ask(self, calls: Sequence[ServerCall[_Value]], *, reads: bool = False) -> list[_Value]:
        """Make calls at the master, or with `reads` where the broker is read: perhaps a slave."""
        return self.cluster.ask(self.broker, calls, self.seconds, reads=reads)

    def topics(self) -> dict[str, TopicConfig]:
        """Return those of the planned topics that the broker has by their routes."""
        return self._configs(self._memory.planned)

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError."""
        configs = self._configs([name])
        if name not in configs:
            raise self.cluster.not_found(name, self.seconds)
        return configs[name]

    def _configs(self, topics: Collection[str], *, fresh: bool = False) -> dict[str, TopicConfig]:
        routes = self.cluster.routes(topics, self.seconds, fresh=fresh)
        return {
            topic: route.queues[self.broker]
            for topic, route in routes.items()
            if self.broker in route.queues
        }

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics."""
        return self._by_queue(self._bounds(topics))

    def _by_queue(self, bounds: TopicBounds) -> dict[MessageQueue, QueueOffsets]:
        return {
            MessageQueue(topic, self.broker, queue_id): has
            for topic, queues in bounds.items()
            for queue_id, has in (queues or {}).items()
        }

    def _bounds(self, topics: Collection[str]) -> TopicBounds:
        """Return the ranges of topics, whose routes are asked for again if they are in doubt."""
        configs = self._configs(topics)
        bounds, _ = self._bounds_by({topic: configs.get(topic) for topic in topics})
        for topic in [topic for topic, has in bounds.items() if has is None and topic in configs]:
            self.cluster.forget_topic(topic)
        new = [topic for topic, has in bounds.items() if has is not None and topic not in configs]
        configs = repeated(partial(self._registered, new), self.seconds)
        return bounds | self._bounds_by(configs)[0]

    def _registered(self, topics: Collection[str], seconds: float) -> dict[str, TopicConfig]:
        """Return the settings of topics that the broker has, in fresh routes."""
        configs = self.within(seconds)._configs(topics, fresh=True)
        if missing := [topic for topic in topics if topic not in configs]:
            raise TransportError(
                f"the name servers have no route of {missing[0]!r} to the broker {self.broker},"
                " which has the topic.",
                remedy="Brokers register every 30 s; if that does not help, see its log.",
                repeat_is_safe=True,
            )
        return configs

    def _bounds_by(
        self, topics: Mapping[str, TopicConfig | None], more: Sequence[ServerCall[Any]] = ()
    ) -> tuple[dict[str, dict[int, QueueOffsets] | None], list[Any]]:
        """Return the range of each read queue, and the values of more calls, in one flight.

        topics: The settings of the topics in their routes, None for topics without a route.

        RocketMQ 4.9 does not answer for queues that can only be read: these are asked for singly.
        """
        read_only = [
            (name, queue_id)
            for name, topic in topics.items()
            if topic is not None
            for queue_id in range(topic.write_queues, topic.read_queues)
        ]
        calls: list[ServerCall[Any]] = [
            topic_offsets(name, also=[ResponseCode.TOPIC_NOT_EXIST]) for name in topics
        ]
        calls += [end(*queue) for queue in read_only for end in (lowest_offset, highest_offset)]
        answers = iter(self._ask([*calls, *more]))
        bounds: dict[str, dict[int, QueueOffsets] | None] = dict.fromkeys(topics)
        for name, topic in topics.items():
            if (answer := next(answers)) is not None:
                bounds[name] = {
                    queue_id: QueueOffsets(has.minimum, has.maximum)
                    for queue_id, has in answer.items()
                    if topic is None or queue_id < topic.read_queues
                }
        for name, queue_id in read_only:
            has, of_topic = QueueOffsets(next(answers), next(answers)), bounds[name]
            if of_topic is not None:
                of_topic[queue_id] = has
        return bounds, [*answers]

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of queues; (0, 0) for those that cannot be read.

        The caller may have the queues from a younger route than that of this process.
        """
        bounds = self.bounds(dict.fromkeys(queue.topic for queue in queues))
        if missing := dict.fromkeys(queue.topic for queue in queues if queue not in bounds):
            self._configs(missing, fresh=True)
            bounds |= self.bounds(missing)
        return {queue: bounds.get(queue, QueueOffsets(0, 0)) for queue in queues}

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group, by default in the topics that are read."""
        queues = self.bounds(self._read if topics is None else topics)
        return _given(queues, self._ask(_committed_calls(group, queues)))

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit offsets; return those in these topics. Creates a missing group.

        Not atomic: after an error, some queues may have the new offsets.
        """
        if not offsets:  # A pull from the end of a queue needs the group.
            queues = self.bounds(self._read).items()
            ends = [(queue.topic, queue.queue_id, has.maximum) for queue, has in queues]
            self._ask_with_group(group, [pull(*end, 1, group) for end in ends[:1]])
            return {}
        bounds, before = self._progress(group, {queue.topic for queue in offsets})
        moved = {
            queue: end
            for queue, at in offsets.items()
            if queue in bounds
            for end in [min(at, bounds[queue].maximum)]
            if backwards or end > before.get(queue, -1)
        }
        # RocketMQ 4.9 can lose commits that are made at the same time as the first in a topic.
        known = {queue.topic for queue, at in before.items() if at}
        firsts = {queue.topic: queue for queue in moved if queue.topic not in known}.values()
        for flight in (firsts, [queue for queue in moved if queue not in firsts]):
            calls = [commit(group, queue.topic, queue.queue_id, moved[queue]) for queue in flight]
            self._ask_with_group(group, calls)
        return before | moved

    def _progress(
        self, group: str, topics: Collection[str]
    ) -> tuple[dict[MessageQueue, QueueOffsets], dict[MessageQueue, int]]:
        """Return ranges and committed offsets of the queues in the routes, in one flight."""
        configs = self._configs(topics)
        queues = [
            MessageQueue(name, self.broker, queue_id)
            for name, topic in configs.items()
            for queue_id in range(topic.read_queues)
        ]
        bounds, offsets = self._bounds_by(configs, _committed_calls(group, queues))
        return self._by_queue(bounds), _given(queues, offsets)

    def _ask_with_group(self, group: str, calls: Sequence[ServerCall[_Value]]) -> None:
        """Make calls, before which the group is created if it is missing.

        This needs the right to administer. Without the topic of its retries, tools do not list it.
        """
        try:
            self._ask(calls)
        except GroupNotFoundError:
            self._ask([write_group(group), write_topic(TopicConfig(retry_topic(group), 1, 1))])
            self._ask(calls)


def _committed_calls(group: str, queues: Collection[MessageQueue]) -> list[ServerCall[int | None]]:
    return [committed(group, queue.topic, queue.queue_id) for queue in queues]


def _given(
    queues: Collection[MessageQueue], offsets: Collection[int | None]
) -> dict[MessageQueue, int]:
    return {queue: at for queue, at in zip(queues, offsets, strict=True) if at is not None}
