"""How far a stream has come, may go next, and whether that can still be read.

Runs on the driver; a look at the bounds of the queues each time, O(queues).
"""

from collections.abc import Iterator, Mapping

from pyrocket import Store
from pyrocket.errors import DataLossError, LogTruncatedError, TopicRecreatedError

from pyspark_pyrocket.checkpoint import StreamOffset
from pyspark_pyrocket.options.offsets import Bounds, QueueNumbers, check_within
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.planner import current_bounds, topics_to_read
from pyspark_pyrocket.ranges import QueueRange
from pyspark_pyrocket.rate_limit import take_rows

_NEW_CHECKPOINT = "Start the query with a new checkpoint (and startingOffsets) to go on."


def initial_offset(store: Store, options: ReadOptions) -> StreamOffset:
    """Return where a new query starts, as `startingOffsets` says."""
    bounds = current_bounds(store, topics_to_read(store, options))
    offsets = options.span.starting.resolve(bounds, store.broker_name)
    return _offset(store, offsets, initial=True)


def latest_offset(store: Store, options: ReadOptions) -> StreamOffset:
    """Return the end of every queue, as far as a query without limits could go now."""
    bounds = current_bounds(store, topics_to_read(store, options))
    return _offset(store, maxima(bounds))


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
    max_rows: int | None = None,
    target: QueueNumbers | None = None,
) -> StreamOffset | None:
    """Return where the next micro-batch ends, or None if there is nothing to read.

    Nothing in it lies before `start` or beyond `target`, and nothing of `start` is left out: a
    queue or topic that has vanished keeps its place. Queues that `start` does not know begin at
    their first message, which is fixed in the result.
    """
    check_offset(store, options, start)
    bounds = current_bounds(store, topics_to_read(store, options))
    begin = _begin(start, bounds)
    end = _clamp(begin, maxima(bounds), target)
    if max_rows is not None:
        end = take_rows(begin, end, max_rows)
    if end == begin:
        return None
    return _offset(
        store,
        _merge(start.offsets, end),
        first=_merge(start.offsets, begin) if start.initial else _added(start, begin),
        older_ids=start.topic_ids,
    )


def planned_ranges(start: StreamOffset, end: StreamOffset) -> Iterator[QueueRange]:
    """Yield what lies between two offsets; on a replay `start` may be newer than it was.

    See `pyspark_pyrocket.checkpoint` for why the end has its own start.
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
                    remedy=_NEW_CHECKPOINT,
                    code="CHECKPOINT_DAMAGED",
                )
            yield QueueRange(topic, queue, begin, offset)


def check_offset(store: Store, options: ReadOptions, offset: StreamOffset) -> None:
    """Raise DataLossError unless `offset` still counts in this store and these topics."""
    for what, then, now in (
        ("store", offset.store, store.uuid),
        ("broker", offset.broker, store.broker_name),
    ):
        if then and now and then != now:
            raise DataLossError(
                f"The checkpoint counts in {what} {then}, but {store.path} is {what} {now}.",
                remedy=f"Point 'path' to the store it was made with. {_NEW_CHECKPOINT}",
                code="STORE_CHANGED",
            )
    _check_topic_ids(store, options, offset.topic_ids)
    if store.epoch != offset.epoch:
        _check_cuts(store, options, offset)


def _check_topic_ids(store: Store, options: ReadOptions, ids: Mapping[str, str]) -> None:
    existing = store.topics()
    for topic in options.subscription.topics:
        then = ids.get(topic, "")
        now = existing[topic].topic_id if topic in existing else ""
        if then and now and then != now:
            raise TopicRecreatedError(
                f"Topic {topic!r} was deleted and created again since the checkpoint was made.",
                remedy=_NEW_CHECKPOINT,
            )


def _check_cuts(store: Store, options: ReadOptions, offset: StreamOffset) -> None:
    for topic in options.subscription.topics:
        for queue, position in offset.offsets.get(topic, {}).items():
            cut = store.cut_since(offset.epoch, topic, queue)
            if cut is not None and cut < position:
                raise LogTruncatedError(
                    f"A crash of the machine cut topic {topic!r} queue {queue} at offset {cut}; "
                    f"the checkpoint has read up to {position}, and other messages may have "
                    "those offsets now.",
                    remedy=_NEW_CHECKPOINT,
                )


def _begin(start: StreamOffset, bounds: Bounds) -> QueueNumbers:
    """Return where each queue goes on, and raise about one whose messages are gone."""
    begin: QueueNumbers = {}
    for topic, queues in bounds.items():
        known = start.offsets.get(topic, {})
        begin[topic] = {queue: known.get(queue, limits.minimum) for queue, limits in queues.items()}
        for queue, limits in queues.items():
            check_within(f"Topic {topic!r}, queue {queue}", begin[topic][queue], limits)
    return begin


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


def _added(start: StreamOffset, begin: QueueNumbers) -> QueueNumbers:
    added = {
        topic: {
            queue: offset
            for queue, offset in queues.items()
            if queue not in start.offsets.get(topic, {})
        }
        for topic, queues in begin.items()
    }
    return {topic: queues for topic, queues in added.items() if queues}


def _offset(
    store: Store,
    offsets: QueueNumbers,
    *,
    first: QueueNumbers | None = None,
    older_ids: Mapping[str, str] | None = None,
    initial: bool = False,
) -> StreamOffset:
    existing = store.topics()
    ids = {topic: existing[topic].topic_id for topic in offsets if topic in existing}
    return StreamOffset(
        store=store.uuid,
        epoch=store.epoch,
        broker=store.broker_name,
        offsets=offsets,
        topic_ids={**(older_ids or {}), **ids},
        first=first or {},
        initial=initial,
    )
