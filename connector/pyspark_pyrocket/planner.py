"""From options and a store's offsets to the ranges of a batch or micro-batch.

Runs on the driver and looks only at the bounds of queues: O(queues), whatever the log holds.
"""

from collections.abc import Iterable, Iterator

from pyrocket import Store
from pyrocket.errors import InvalidInputError, OptionError

from pyspark_pyrocket.options.offsets import Bounds, QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.ranges import QueuePartition, QueueRange, pack

_MANY = 20


def topics_to_read(store: Store, options: ReadOptions) -> list[str]:
    """Return those of the topics asked for that exist, or raise about one that should.

    With `missingTopic=wait` one is enough, otherwise all have to be there.
    """
    existing = store.topics()
    found = [name for name in options.subscription.topics if name in existing]
    if len(found) < len(options.subscription.topics) and not (options.subscription.wait and found):
        missing = next(name for name in options.subscription.topics if name not in existing)
        store.topic(missing)  # Raises, naming the nearest topic.
    for name in found:
        if not existing[name].readable:
            raise InvalidInputError(
                f"Topic {name!r} does not permit reading (perm {existing[name].perm}).",
                remedy="Give it read permission: perm 4 or 6.",
                code="TOPIC_NOT_READABLE",
            )
    return found


def current_bounds(store: Store, topics: Iterable[str]) -> Bounds:
    """Return the offsets that each queue of the topics has now."""
    return {topic: store.offsets(topic) for topic in topics}


def batch_partitions(store: Store, options: ReadOptions) -> list[QueuePartition]:
    """Return the tasks of a batch read; where it starts and ends is decided here, once."""
    bounds = current_bounds(store, topics_to_read(store, options))
    start = options.span.starting.resolve(bounds, store.broker_name)
    end = options.span.ending.resolve(bounds, store.broker_name)
    _check_order(start, end)
    return partitions(store, options, _ranges(start, end))


def partitions(
    store: Store, options: ReadOptions, ranges: Iterable[QueueRange]
) -> list[QueuePartition]:
    """Return the tasks for these ranges.

    A function of nothing but its arguments and of records that no longer change, so that a
    replayed micro-batch is cut in the same way.
    """
    kept = sorted(each for each in ranges if each.start < each.end)
    if options.splitting.coalesce:
        groups = pack(kept, lambda each: _estimate(store, each))
    else:
        groups = [(each,) for each in kept]
    return [QueuePartition(options.path, store.uuid, group) for group in groups]


def _estimate(store: Store, each: QueueRange) -> int:
    return store.estimate_bytes(each.topic, each.queue_id, each.start, each.end)


def _ranges(start: QueueNumbers, end: QueueNumbers) -> Iterator[QueueRange]:
    for topic, queues in end.items():
        for queue, offset in queues.items():
            yield QueueRange(topic, queue, start[topic][queue], offset)


def _check_order(start: QueueNumbers, end: QueueNumbers) -> None:
    wrong = [
        f"topic {each.topic!r} queue {each.queue_id}: {each.start} > {each.end}"
        for each in _ranges(start, end)
        if each.start > each.end
    ]
    if wrong:
        raise OptionError(
            f"The start lies beyond the end for {'; '.join(wrong[:_MANY])}.",
            remedy="Change startingOffsets or endingOffsets.",
            code="START_BEYOND_END",
        )
