"""Reads topics at one broker of a cluster, as `SourceCalls` promises it."""

import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from pyrocket.base.clock import system_clock
from pyrocket.errors import TransportError
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.calls import ServerCall
from pyrocket.remoting.cluster import ATTEMPT_S, RocketMQCluster
from pyrocket.remoting.connection import CONNECT_S
from pyrocket.remoting.lookups import locate, slices_at
from pyrocket.remoting.offsets import (
    commit_offsets,
    committed_offsets,
    create_if_missing,
    topic_bounds,
)
from pyrocket.remoting.pulls import PullSettings, out_of_range
from pyrocket.remoting.reads import read_anywhere, read_together
from pyrocket.remoting.requests import READER_GROUP, message_at
from pyrocket.remoting.samples import Samples, filled_again, first_since, has_lost, mark_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.lookup import LookupRequest, LookupResult, MessageLocations
from pyrocket.values.message import (
    ByteSpan,
    LogMark,
    MessageQueue,
    QueueOffsets,
    QueueRange,
    SourceIdentity,
)
from pyrocket.values.source import ReadPlan

if TYPE_CHECKING:
    from typing_extensions import Self

IDLE_S = 0.1
"""The least time between two looks for new messages while a query is idle."""

_Value = TypeVar("_Value")
_TopicBounds = Mapping[str, Mapping[int, QueueOffsets] | None]


@dataclass
class _Memory:
    """What a source remembers.

    Attributes:
        samples: The samples of queues.
        planned: The topics of the last plan.
        look: The ranges of the last look for new messages, until a plan uses it.
        looked_at: When that was, on the monotonic clock.
    """

    samples: Samples
    planned: tuple[str, ...] = ()
    look: _TopicBounds | None = None
    looked_at: float = 0.0


class RocketMQSource:
    """Reads topics at one broker, and commits for consumer groups. Safe to share between threads.

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
        self._group = group or READER_GROUP
        self._read, self._memory = tuple(topics), _Memory(Samples(self._group))

    def limited(self, seconds: float) -> "Self":
        """Return a source that shares everything with this one, and has another deadline."""
        limited = copy(self)
        limited.seconds = seconds
        return limited

    def _ask(self, calls: Sequence[ServerCall[_Value]]) -> list[_Value]:
        return self.cluster.ask(self.broker, calls, self.seconds)

    def _ask_any(self, calls: Sequence[ServerCall[_Value]]) -> list[_Value]:
        """Ask where the broker is read: perhaps a slave."""
        return self.cluster.ask(self.broker, calls, self.seconds, reads=True)

    # The store and its topics

    @property
    def store_id(self) -> str:
        """The name of the cluster as the id of the store: a broker has no other one."""
        return f"rocketmq:{self.cluster.broker(self.broker, self.seconds).cluster}"

    def identities(self) -> dict[str, SourceIdentity]:
        """Return the id of the store."""
        return {self.broker: SourceIdentity(store=self.store_id, epoch=0)}

    def now_ms(self) -> int:
        """Return the time of this machine."""
        return system_clock()

    def is_recovering(self) -> bool:
        """Return False: a broker recovers its store before it serves clients."""
        return False

    def deliver_due(self) -> bool:
        """Return False: a broker delivers delayed messages itself."""
        return False

    def version(self) -> Hashable:
        """Return the ranges of the queues, which the next plan uses.

        While no plan uses them, the broker is asked ten times a second at most, so that this call
        pauses.
        """
        memory = self._memory
        if memory.look is not None:
            time.sleep(max(memory.looked_at + IDLE_S - time.monotonic(), 0))
        memory.look = look = self._bounds(memory.planned or self._read)
        memory.looked_at = time.monotonic()
        return tuple((topic, *map(tuple, (has or {}).items())) for topic, has in look.items())

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Return False immediately: `version` waits."""
        return False

    def plan(self, topics: Collection[str]) -> ReadPlan:
        """Return what a micro-batch needs: one flight, or none after `version`."""
        memory, wanted = self._memory, tuple(dict.fromkeys((*self._read, *topics)))
        look, memory.look = memory.look, None
        is_old = time.monotonic() - memory.looked_at > IDLE_S
        if look is None or is_old or not look.keys() >= {*wanted}:
            look = self._bounds(wanted)
        memory.planned = wanted
        configs = self._configs(wanted)
        pool = self.cluster.pool(self.broker, self.seconds)
        return ReadPlan(
            broker=self.broker,
            store=self.store_id,
            epoch=0,
            run=f"{pool.address} {pool.lost}",
            topics=[configs[topic] for topic, has in look.items() if has is not None],
            bounds=_by_queue(self.broker, look),
        )

    def topics(self) -> dict[str, TopicConfig]:
        """Return those of the read topics that the broker has by their routes."""
        return self._configs((*self._read, *self._memory.planned))

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

    # Offsets

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics."""
        return _by_queue(self.broker, self._bounds(topics))

    def _bounds(self, topics: Collection[str]) -> _TopicBounds:
        """Return the ranges of topics; None for those that the broker says it does not have."""
        configs = self._configs(topics)
        bounds = topic_bounds(self._ask, {topic: configs.get(topic) for topic in topics})
        for topic in [topic for topic, has in bounds.items() if has is None and topic in configs]:
            self.cluster.forget_topic(topic)
        new = [topic for topic, has in bounds.items() if has is not None and topic not in configs]
        if new:
            configs = self._configs(new, fresh=True)
            if missing := [topic for topic in new if topic not in configs]:
                raise _without_route(missing[0], self.broker)
            bounds |= topic_bounds(self._ask, {topic: configs[topic] for topic in new})
        return bounds

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of queues; (0, 0) for those that cannot be read."""
        bounds = self.bounds(dict.fromkeys(queue.topic for queue in queues))
        return {queue: bounds.get(queue, QueueOffsets(0, 0)) for queue in queues}

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return nothing: a broker does not let former read queues be read."""
        return {}

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return nothing: a broker does not say what it has lost; see `holds`."""
        return {}

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time, or the end."""
        return first_since(times_ms, self.queue_bounds(times_ms), self._ask, self._group)

    # Marks and sizes

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets; None if there is none."""
        places = [(queue, at) for queue, at in offsets.items() if at > 0]
        samples = self._memory.samples.before(places, self._ask)
        marks = [sample.mark for sample in samples.values() if sample.mark is not None]
        return max(marks, key=lambda mark: mark.log_offset, default=None)

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log has the marked message.

        If it has another one there or none, but still has an older one, it has lost it. None if it
        may have expired.
        """
        topics = self._memory.planned or self._read
        (record,) = self._ask([message_at(mark.log_offset, next(iter(topics), ""))])
        if record is not None and mark_of(record) == mark:
            return True
        return False if has_lost(mark, self.bounds(topics), self._ask, self._group) else None

    def refilled(
        self, offsets: Mapping[MessageQueue, int], mark: LogMark
    ) -> dict[MessageQueue, int]:
        """Return queues with messages newer than the mark before these offsets, and the first."""
        bounds = self.queue_bounds(offsets)
        queues = filled_again(offsets, bounds, mark, self._ask, self._group)
        return self.offsets_at(dict.fromkeys(queues, mark.store_timestamp + 1))

    def _mean_bytes(self, ranges: Collection[QueueRange]) -> list[int]:
        """Return the mean size of the last messages of each range, by which its size is estimated.

        It depends on nothing else, so that a replay gets the same tasks.
        """
        places = [(part.queue, part.end) for part in ranges]
        filled = [place for place, part in zip(places, ranges, strict=True) if part.rows > 0]
        samples = self._memory.samples.before(filled, self._ask)
        return [samples[place].mean_bytes if place in samples else 1 for place in places]

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return estimates, with places as if the log had one range after the other."""
        means = self._mean_bytes(ranges)
        counts = [part.rows * mean for part, mean in zip(ranges, means, strict=True)]
        return [
            ByteSpan(end - count, end, count)
            for count, end in zip(counts, accumulate(counts), strict=True)
        ]

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Split ranges as if all messages of a range had its mean size."""
        means = self._mean_bytes([part for part, _ in splits])
        return [
            [
                (part.start + count, count * mean)
                for count in (min(mark // mean, part.rows) for mark in marks)
            ]
            for (part, marks), mean in zip(splits, means, strict=True)
        ]

    # Groups

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group, by default in the topics that are read."""
        queues = self.bounds(self._read if topics is None else topics)
        return committed_offsets(self._ask, group, queues)

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit offsets; return those in these topics. Creates a missing group.

        Not atomic: after an error, some queues may have the new offsets.
        """
        bounds = self.bounds(dict.fromkeys(queue.topic for queue in offsets) or self._read)
        if not offsets:
            for queue, has in [*bounds.items()][:1]:
                create_if_missing(self._ask, group, queue, has.maximum)
            return {}
        before = committed_offsets(self._ask, group, bounds)
        moved = {
            queue: end
            for queue, at in offsets.items()
            if queue in bounds
            for end in [min(at, bounds[queue].maximum)]
            if backwards or end > before.get(queue, -1)
        }
        commit_offsets(self._ask, group, moved, before)
        return {**before, **moved}

    # Messages

    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield raw records, range after range; resumes after a lost connection."""
        where, tally, bounds = where or EVERYTHING, tally or ScanTally(), {}
        with suppress(TransportError):  # A slave can be read without the master.
            soon = self.limited(min(self.seconds, CONNECT_S))
            bounds = soon.queue_bounds([part.queue for part in ranges])
        for part in ranges:
            has = bounds.get(part.queue)
            # A pull after the end would wait for messages.
            if has and part.rows and not has.minimum <= part.start <= part.end <= has.maximum:
                wanted = f"[{part.start}, {part.end})"
                raise out_of_range(part.queue, has.minimum, has.maximum, wanted)
            pulls = self._pulls(where)
            yield from read_anywhere(self.cluster, part, pulls, self.seconds, where, tally)

    def joined_slice(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return small ranges of one topic as one slice; None if they have to be read alone."""
        where = where or EVERYTHING
        return read_together(ranges, self._ask_any, self._pulls(where), where, tally or ScanTally())

    def _pulls(self, where: MessageFilter) -> PullSettings:
        """Return how messages are pulled: tags are also selected by the broker."""
        tags = " || ".join(sorted(where.tags)) if where.tags else "*"
        return PullSettings(self._group, tags, min(self.seconds, ATTEMPT_S))

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of all messages that match, as far as the broker has indexed them.

        Raises UnsupportedError (LOOKUP_INCOMPLETE).
        """
        return locate(self._ask, request)

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages at these locations as raw records."""
        queue = MessageQueue(locations.topic, self.broker, locations.queue_id)
        where, tally = where or EVERYTHING, tally or ScanTally()
        return slices_at(self._ask_any, queue, locations, self._group, where, tally)

    def close(self) -> None:
        """Do nothing: the connections belong to the cluster."""


def _by_queue(broker: str, bounds: _TopicBounds) -> dict[MessageQueue, QueueOffsets]:
    return {
        MessageQueue(topic, broker, queue_id): has
        for topic, queues in bounds.items()
        for queue_id, has in (queues or {}).items()
    }


def _without_route(topic: str, broker: str) -> TransportError:
    return TransportError(
        f"the name servers have no route of {topic!r} to the broker {broker}, which has the topic.",
        remedy="Brokers register every 30 s; if that does not help, see the log of the broker.",
        repeat_is_safe=True,
    )
