"""From options and a store's offsets to the ranges of a batch or micro-batch.

Runs on the driver and looks only at the bounds of queues: O(queues), whatever the log holds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from pyrocket import QueueOffsets, Store, TopicConfig, is_system_topic
from pyrocket.errors import InvalidInputError, QueueNotFoundError, TopicNotFoundError

from pyspark_pyrocket.options.positions import Bounds, QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import Subscription
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.partitions import cut
from pyspark_pyrocket.source.ranges import QueuePartition, QueueRange
from pyspark_pyrocket.worker import LOG, log_to_stderr

_MANY = 20


def topics_to_read(store: Store, options: ReadOptions, known: Collection[str] = ()) -> list[str]:
    """Return those of the topics asked for that exist, or raise about one that should.

    All that are named have to be there, or one that the pattern matches, unless the query waits for
    them or makes them itself. That one of the `known` is not is no mistake: it was there, and is a
    loss.
    """
    existing, asked = store.topics.all(), options.subscription
    if asked.pattern:
        return _matching(store, existing, asked, known)
    waits = asked.wait or options.create_if_missing
    found = [name for name in asked.topics if name in existing]
    missing = [name for name in asked.topics if name not in existing and name not in known]
    if missing and not waits:
        store.topics.get(missing[0])  # Raises, naming the nearest topic.
    for name in found:
        _check_readable(existing[name])
    return found


def read_bounds(store: Store, options: ReadOptions, known: Collection[str] = ()) -> Bounds:
    """Return the offsets that each queue to read has now; raises what `topics_to_read` does."""
    topics = topics_to_read(store, options, known)
    return {topic: _queues(store, topic, options.subscription, known) for topic in topics}


def current_bounds(store: Store, topics: Iterable[str]) -> Bounds:
    """Return the offsets that each queue of the topics has now."""
    return {topic: store.offsets(topic) for topic in topics}


def batch_partitions(store: Store, options: ReadOptions) -> list[QueuePartition]:
    """Return the tasks of a batch read; where it starts and ends is decided here, once."""
    log_to_stderr()
    bounds = read_bounds(store, options)
    start, end = find_span(store, options, bounds, Losses(options.loss))
    _warn_of_lost_queues(store, bounds, options.subscription)
    return partitions(store, options, _ranges(start, end))


def partitions(
    store: Store, options: ReadOptions, ranges: Iterable[QueueRange]
) -> list[QueuePartition]:
    """Return the tasks for these ranges.

    A function of nothing but its arguments and of records that no longer change, so that a
    replayed micro-batch is cut in the same way.
    """
    kept = sorted(each for each in ranges if each.rows > 0)
    tasks = cut(kept, options.splitting, store.raw)
    return [QueuePartition(options.path, store.uuid, task) for task in tasks]


def _warn_of_lost_queues(store: Store, topics: Iterable[str], asked: Subscription) -> None:
    for topic in topics:
        lost = {} if topic in asked.queues else store.lost_queues(topic)
        if lost:
            LOG.warning(
                "topic %r has fewer read queues than before: queues %s still hold %d messages,"
                " which a batch does not read until the topic has them again",
                topic,
                list(lost),
                sum(has.maximum - has.minimum for has in lost.values()),
            )


def _ranges(start: QueueNumbers, end: QueueNumbers) -> Iterator[QueueRange]:
    for topic, queues in end.items():
        for queue, offset in queues.items():
            yield QueueRange(topic, queue, start[topic][queue], offset)


def _matching(
    store: Store, existing: Mapping[str, TopicConfig], asked: Subscription, known: Collection[str]
) -> list[str]:
    matching = [
        name
        for name in existing
        if asked.covers(name) and not is_system_topic(name, store.broker_name, existing)
    ]
    found = [name for name in matching if existing[name].readable or name in known]
    if not found and not known and not asked.wait:
        raise TopicNotFoundError(
            f"No topic of {store.path} has a name that {asked.pattern!r} matches as a whole.",
            remedy=f"Topics: {', '.join(list(existing)[:_MANY]) or 'none'}. RocketMQ's own, and "
            "those without read permission, match no pattern.",
        )
    for name in found:
        _check_readable(existing[name])
    return found


def _check_readable(topic: TopicConfig) -> None:
    if not topic.readable:
        raise InvalidInputError(
            f"Topic {topic.name!r} does not permit reading (perm {topic.perm}).",
            remedy="Give it read permission: perm 4 or 6.",
            code="TOPIC_NOT_READABLE",
        )


def _queues(
    store: Store, topic: str, asked: Subscription, known: Collection[str]
) -> Mapping[int, QueueOffsets]:
    queues = store.offsets(topic)
    for queue in asked.queues.get(topic, ()):
        if queue not in queues and topic not in known:
            raise QueueNotFoundError(
                f"Option 'assign': topic {topic!r} has no queue {queue}.",
                remedy=f"Its queues to read are {', '.join(map(str, queues))}.",
            )
    return {queue: queues[queue] for queue in asked.chosen(topic, queues)}
