"""Plans the offsets of a stream: the initial offset, the end of a micro-batch, the latest offset.

Runs on the driver and reads the bounds of the queues on every call: O(queues). To plan a
micro-batch, `resume` finds where the queues continue. Their bounds, the target of AvailableNow and
the limits determine where the micro-batch ends. The result is an offset, which Spark saves.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from pyrocket import LogMark, MessageQueue, QueueRange, SourceIdentity, TopicConfig
from pyrocket.errors import DataLossError

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_start
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.source.resume import (
    NEW_CHECKPOINT,
    RECOVERY_MISSING,
    resume,
    waits_for_recovery,
)
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.cluster_source import side_by_side
from pyspark_pyrocket.transport.interface import BrokerSource, MessageSource

Take = Callable[[Offsets, Offsets], Offsets]
"""Called with the start and the latest possible end of a micro-batch; returns its end."""


def initial_offset(source: MessageSource, options: ReadOptions) -> StreamOffset:
    """Return the initial offset of a new query, by its options.

    A topic that does not exist yet has no queues; it is later read from its first message.
    """
    context = OffsetContext.now(source)
    losses = Losses(options.loss)
    offsets = find_start(source, options, read_bounds(source, options), losses)
    existing = set(offsets.topics)
    waiting = [name for name in options.subscription.topics if name not in existing]
    return context.offset(
        offsets,
        waiting=waiting,
        marks={
            name: broker_source.mark(offsets.of_broker(name))
            for name, broker_source in context.sources.items()
        },
        initial=True,
        lost=losses.counts,
    )


def empty_offset(source: MessageSource) -> StreamOffset:
    """Return an initial offset without queues."""
    return OffsetContext.now(source).offset(Offsets(), initial=True)


def latest_offset(source: MessageSource, options: ReadOptions) -> StreamOffset:
    """Return the end of every existing queue: how far a query without limits could read now."""
    context = OffsetContext.now(source)
    return context.offset(Offsets.ends(read_bounds(source, options, known=None)))


def next_offset(
    source: MessageSource,
    options: ReadOptions,
    start: StreamOffset,
    *,
    take: Take | None = None,
    target: Offsets | None = None,
    losses: Losses | None = None,
) -> StreamOffset | None:
    """Return the end offset of the next micro-batch, or None if there is nothing to read.

    `take` limits the micro-batch; without it everything is read. The result has all queues of
    `start`. A queue ends at or after the offset at which it continues and, apart from that, not
    after `target`.

    Queues that `start` lacks begin at their first message. The result records the start of these
    queues, and of queues that continue at another offset than they stopped at, even if there is
    nothing to read. Queues that topics no longer have are read to their current ends, which are
    added to `target`.
    """
    losses = losses or Losses(options.loss)
    context = OffsetContext.now(source, start.broker_names)
    if waits_for_recovery(source, start):
        losses.warn_once(
            f"{source.target.describe()}: {RECOVERY_MISSING} The query waits until then."
        )
        return None
    resumed = resume(source, options, start, losses)
    begin, end = resumed.begin, Offsets.ends(resumed.bounds)
    if target is not None:
        for queue, limits in resumed.vanished.items():
            target.setdefault(queue, limits.maximum)
        for queue in _unreached(start, end, target):
            target.setdefault(queue, end[queue])
        end = end.clamp(begin, target)
    if take is not None:
        end = take(begin, end)
    if end == begin and not resumed.moved:
        return None
    first, offsets = resumed.stopped.merge(begin), resumed.stopped.merge(end)
    known = set(offsets.topics)
    return context.offset(
        offsets,
        waiting=[topic for topic in start.waiting if topic not in known],
        marks=_newest_marks(context.sources, resumed.restored, start, offsets),
        first=first if start.initial else first.changed_from(start.offsets),
        older_ids=_without(start.topic_ids, resumed.restored),
        lost=start.lost.plus(losses.take()),
    )


def _unreached(start: StreamOffset, end: Offsets, target: Offsets) -> list[MessageQueue]:
    """Return the queues of brokers that could not be found when the target was fixed.

    The queues of a single broker are not affected: without them, there was nothing to read.
    """
    brokers = {queue.broker for queue in target}
    known = [queue for queue in end if queue in start.offsets]
    return [queue for queue in known if brokers and queue.broker not in brokers]


def planned_ranges(start: StreamOffset, end: StreamOffset) -> Iterator[QueueRange]:
    """Yield the ranges between two offsets.

    On a replay, `start` may be newer than when the batch was planned. Therefore `end` has start
    offsets of its own: see `pyspark_pyrocket.source.stream_offset`.
    """
    if end.initial or end == start:
        return
    for queue, offset in end.offsets.items():
        begin = end.begin(queue, start)
        if begin is None or begin > offset:
            raise DataLossError(
                f"The checkpoint's offsets of {queue} run from {begin} to {offset}.",
                remedy=NEW_CHECKPOINT,
                code="CHECKPOINT_DAMAGED",
            )
        yield QueueRange(queue, begin, offset)


def _newest_marks(
    sources: Mapping[str, BrokerSource],
    restored: Collection[str],
    start: StreamOffset,
    offsets: Offsets,
) -> dict[str, LogMark | None]:
    """Return for each broker the mark of the newest message before `offsets`.

    Reads only changed queues, unless the older mark is missing or the store was restored.
    """
    older = {name: None if name in restored else start.mark(name) for name in sources}

    def newest(name: str, source: BrokerSource) -> LogMark | None:
        now = offsets.of_broker(name)
        newer = source.mark(now.changed_from(start.offsets) if older[name] else now)
        marks = [mark for mark in (older[name], newer) if mark is not None]
        return max(marks, key=lambda mark: mark.log_offset, default=None)

    return side_by_side(newest, sources)


def _without(
    ids: Mapping[str, Mapping[str, str]], brokers: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the topic ids of all other brokers."""
    return {
        topic: {name: topic_id for name, topic_id in known.items() if name not in brokers}
        for topic, known in ids.items()
    }


@dataclass(frozen=True)
class OffsetContext:
    """Brokers, stores and topics, read before the offsets.

    A change between the two reads is therefore detected by the next call.

    Attributes:
        sources, brokers, topics: By broker: its source, the identity of its store, its topics.
    """

    sources: Mapping[str, BrokerSource]
    brokers: Mapping[str, SourceIdentity]
    topics: Mapping[str, Mapping[str, TopicConfig]]

    @classmethod
    def now(cls, source: MessageSource, expected: Collection[str] = ()) -> "OffsetContext":
        """Return brokers, identities and topics of a source, which has to find `expected`."""
        sources, brokers = source.by_broker(expected), source.identities()
        return cls(
            sources,
            brokers,
            {name: broker_source.topics() for name, broker_source in sources.items()},
        )

    def offset(
        self,
        offsets: Offsets,
        *,
        waiting: Collection[str] = (),
        marks: Mapping[str, LogMark | None] | None = None,
        first: Offsets | None = None,
        older_ids: Mapping[str, Mapping[str, str]] | None = None,
        lost: Offsets | None = None,
        initial: bool = False,
    ) -> StreamOffset:
        """Return an offset that is valid for these brokers and topics."""
        older_ids, marks = older_ids or {}, marks or {}
        names = dict.fromkeys((*older_ids, *offsets.topics, *waiting))
        ids = {topic: self._ids(topic, older_ids.get(topic, {})) for topic in names}
        return StreamOffset(
            brokers={
                name: replace(known, mark=marks.get(name)) for name, known in self.brokers.items()
            },
            offsets=offsets,
            waiting=tuple(waiting),
            topic_ids={topic: known for topic, known in ids.items() if known},
            first=first or Offsets(),
            initial=initial,
            lost=lost or Offsets(),
        )

    def _ids(self, topic: str, older: Mapping[str, str]) -> dict[str, str]:
        """Return the id of a topic by broker; the older one where the topic does not exist."""
        now = {name: known[topic].topic_id for name, known in self.topics.items() if topic in known}
        return {
            name: topic_id for name, topic_id in {**older, **now}.items() if name in self.brokers
        }
