"""How far a stream has come, may go next, and whether that can still be read.

Runs on the driver; a look at the bounds of the queues each time, O(queues).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from pyrocket import LogMark, Store, TopicConfig
from pyrocket.errors import DataLossError

from pyspark_pyrocket.options.positions import Bounds, QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_start
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.source.ranges import QueueRange
from pyspark_pyrocket.source.resume import NEW_CHECKPOINT, WAITS, resume, waits_for_recovery
from pyspark_pyrocket.source.stream_offset import SourceIdentity, StreamOffset

Take = Callable[[QueueNumbers, QueueNumbers], QueueNumbers]
"""How far a micro-batch goes that begins at the first and could go to the second."""


def initial_offset(store: Store, options: ReadOptions) -> StreamOffset:
    """Return where a new query starts, as its options say.

    A topic that it waits for is there without queues: whatever it has is read from the beginning.
    """
    counts_in = _CountsIn.now(store)
    losses = Losses(options.loss)
    offsets: QueueNumbers = {topic: {} for topic in options.subscription.topics}
    offsets |= find_start(store, options, read_bounds(store, options), losses)
    mark = store.history.mark(offsets)
    return counts_in.offset(offsets, mark=mark, initial=True, lost=losses.counts)


def latest_offset(store: Store, options: ReadOptions, known: Collection[str] = ()) -> StreamOffset:
    """Return the end of every queue, as far as a query without limits could go now.

    The `known` topics need not exist any more.
    """
    counts_in = _CountsIn.now(store)
    return counts_in.offset(maxima(read_bounds(store, options, known)))


def maxima(bounds: Bounds) -> QueueNumbers:
    """Return the end of each queue."""
    return {
        topic: {queue: limits.maximum for queue, limits in queues.items()}
        for topic, queues in bounds.items()
    }


def next_offset(
    store: Store,
    options: ReadOptions,
    start: StreamOffset,
    *,
    take: Take | None = None,
    target: QueueNumbers | None = None,
    losses: Losses | None = None,
) -> StreamOffset | None:
    """Return where the next micro-batch ends, or None if there is nothing to read.

    `take` says how much of what there is a micro-batch takes; else it is all. Nothing lies before
    where `start` goes on, or beyond `target`, and nothing of `start` is left out. Queues that
    `start` does not know begin at their first message; that, and where a queue had to be moved,
    is fixed in the result, even if there is nothing to read there.

    Queues that topics have lost are read to where they end now, which is added to `target`.
    """
    losses = losses or Losses(options.loss)
    counts_in = _CountsIn.now(store)
    if waits_for_recovery(store, start):
        losses.say_once(f"{store.path}: {WAITS} The query waits for that.")
        return None
    resumed = resume(store, options, start, losses)
    begin = resumed.begin
    if target is not None:
        _add_vanished(target, resumed.vanished)
    end = _clamp(begin, maxima(resumed.bounds), target)
    if take is not None:
        end = take(begin, end)
    if end == begin and not resumed.moved:
        return None
    first, offsets = _merge(resumed.stopped, begin), _merge(resumed.stopped, end)
    first = {topic: queues for topic, queues in first.items() if queues}
    return counts_in.offset(
        offsets,
        mark=_newest_mark(store, start, offsets, is_restored=resumed.is_restored),
        first=first if start.initial else _changed(start, first),
        older_ids={} if resumed.is_restored else start.topic_ids,
        lost=_sum(start.lost, losses.take()),
    )


def planned_ranges(start: StreamOffset, end: StreamOffset) -> Iterator[QueueRange]:
    """Yield what lies between two offsets; on a replay `start` may be newer than it was.

    See `pyspark_pyrocket.source.stream_offset` for why the end has its own start.
    """
    if end.initial or end == start:
        return
    for topic, queues in end.offsets.items():
        for queue, offset in queues.items():
            begin = end.begin(topic, queue, start)
            if begin is None or begin > offset:
                raise DataLossError(
                    f"The checkpoint's offsets of topic {topic!r} queue {queue} go from {begin} "
                    f"to {offset}.",
                    remedy=NEW_CHECKPOINT,
                    code="CHECKPOINT_DAMAGED",
                )
            yield QueueRange(topic, queue, begin, offset)


def _newest_mark(
    store: Store, start: StreamOffset, offsets: QueueNumbers, *, is_restored: bool
) -> LogMark | None:
    """Return the mark of the newest message before `offsets`, looking only where they moved."""
    older = None if is_restored else start.source.mark
    if older is None:
        return store.history.mark(offsets)
    newer = store.history.mark(_changed(start, offsets))
    return max(older, newer or older, key=lambda mark: mark.log_offset)


def _clamp(begin: QueueNumbers, end: QueueNumbers, target: QueueNumbers | None) -> QueueNumbers:
    if target is None:
        return end
    return {
        topic: {
            queue: max(begin[topic][queue], min(offset, target.get(topic, {}).get(queue, 0)))
            for queue, offset in queues.items()
        }
        for topic, queues in end.items()
    }


def _merge(older: QueueNumbers, newer: QueueNumbers) -> QueueNumbers:
    return {topic: {**older.get(topic, {}), **newer.get(topic, {})} for topic in {**older, **newer}}


def _changed(start: StreamOffset, offsets: QueueNumbers) -> QueueNumbers:
    """Return the offsets of those queues that `start` does not have there."""
    changed = {
        topic: {
            queue: offset
            for queue, offset in queues.items()
            if start.offsets.get(topic, {}).get(queue) != offset
        }
        for topic, queues in offsets.items()
    }
    return {topic: queues for topic, queues in changed.items() if queues}


def _sum(one: QueueNumbers, other: QueueNumbers) -> QueueNumbers:
    return {
        topic: {
            queue: one.get(topic, {}).get(queue, 0) + other.get(topic, {}).get(queue, 0)
            for queue in {**one.get(topic, {}), **other.get(topic, {})}
        }
        for topic in {**one, **other}
    }


def _add_vanished(target: QueueNumbers, vanished: Bounds) -> None:
    for topic, queues in vanished.items():
        for queue, limits in queues.items():
            target.setdefault(topic, {}).setdefault(queue, limits.maximum)


@dataclass(frozen=True)
class _CountsIn:
    """What offsets count in, looked up before them: a change in between is found the next time."""

    broker: str
    source: SourceIdentity
    topics: Mapping[str, TopicConfig]

    @classmethod
    def now(cls, store: Store) -> "_CountsIn":
        return cls(store.broker_name, SourceIdentity.of(store), store.topics.all())

    def offset(
        self,
        offsets: QueueNumbers,
        *,
        mark: LogMark | None = None,
        first: QueueNumbers | None = None,
        older_ids: Mapping[str, str] | None = None,
        lost: QueueNumbers | None = None,
        initial: bool = False,
    ) -> StreamOffset:
        ids = {name: self.topics[name].topic_id for name in offsets if name in self.topics}
        return StreamOffset(
            broker=self.broker,
            source=replace(self.source, mark=mark),
            offsets=offsets,
            topic_ids={**(older_ids or {}), **ids},
            first=first or {},
            initial=initial,
            lost=lost or {},
        )
