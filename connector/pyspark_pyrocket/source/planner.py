"""Plans the tasks of a batch or micro-batch from the options and the current state of a source.

Runs on the driver and reads only the bounds of queues: O(queues), independent of the log's size.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from pyrocket import (
    MessageQueue,
    PendingRange,
    QueueOffsets,
    QueueRange,
    SourceIdentity,
    TopicConfig,
    is_system_topic,
)
from pyrocket.errors import InvalidInputError, QueueNotFoundError, TopicNotFoundError

from pyspark_pyrocket.options.positions import CommittedOffsets
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import MESSAGES, WAITING
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.offsets import topics_of
from pyspark_pyrocket.source.partitions import (
    Ranges,
    ReadPartition,
    ViewParts,
    cut,
    group_by_weight,
)
from pyspark_pyrocket.transport.interface import (
    NEEDS,
    Capability,
    MessageSource,
    PlannedPart,
    Target,
    require,
)
from pyspark_pyrocket.transport.planning import Planning
from pyspark_pyrocket.worker import LOG, log_to_stderr

_MAX_NAMED = 20


def needed_capabilities(options: ReadOptions) -> dict[Capability, str]:
    """Return what the transport has to support, and the option that needs it."""
    asked = {
        "keys": bool(options.lookup.keys),
        "msgId": bool(options.lookup.ids),
        "badRecordsTopic": bool(options.payload.bad_topic),
        "view": options.view != MESSAGES,
        "group": CommittedOffsets in map(type, (options.span.starting, options.span.ending)),
        "commitToGroup": bool(options.progress.commit_to),
        "createIfMissing": options.create_if_missing,
    }
    return {NEEDS[option]: option for option, is_given in asked.items() if is_given}


def check_target(target: Target, options: ReadOptions) -> None:
    """Raise OptionError (OPTION_UNSUPPORTED) if the transport does not support an option."""
    require(target, needed_capabilities(options))


def topics_to_read(
    source: MessageSource, options: ReadOptions, known: Collection[str] | None = ()
) -> list[str]:
    """Return the requested topics that exist. Raises TopicNotFoundError if one is missing.

    All named topics have to exist, or at least one topic that the pattern matches, unless the query
    waits for its topics or creates them. A missing topic that is `known` is not an error here, but
    a loss: it existed. With None, the checkpoint has not been read yet, so any topic may be known.
    """
    existing, asked = source.topics(), options.subscription
    if asked.pattern:
        return _matching(source, existing, asked, known)
    names = [name for name in asked.topics if name in existing]
    if known is not None and not (asked.wait or options.create_if_missing):
        missing = [name for name in asked.topics if name not in existing and name not in known]
        if missing:
            source.topic(missing[0])  # Raises an error that names the nearest topic.
    for name in names:
        _check_readable(existing[name])
    return names


def read_bounds(
    source: MessageSource, options: ReadOptions, known: Collection[MessageQueue] | None = ()
) -> dict[MessageQueue, QueueOffsets]:
    """Return the current bounds of each queue to read. Raises the errors of `topics_to_read`."""
    names = None if known is None else topics_of(dict.fromkeys(known))
    topics, asked = topics_to_read(source, options, names), options.subscription
    removed = options.loss.removed_brokers
    bounds = {
        queue: limits
        for queue, limits in source.bounds(topics).items()
        if queue.broker not in removed
    }
    if asked.queues and known is not None:
        _check_assigned(asked, dict.fromkeys((*bounds, *known)), topics)
    return {queue: limits for queue, limits in bounds.items() if is_asked(asked, queue)}


def is_asked(asked: SubscribedTopics, queue: MessageQueue) -> bool:
    """Return whether the query reads a queue, given that it reads the queue's topic."""
    wanted = asked.queues.get(queue.topic)
    return wanted is None or queue.queue_id in wanted


def batch_partitions(source: MessageSource, options: ReadOptions) -> list[ReadPartition]:
    """Return the tasks of a batch read; its start and end are fixed here."""
    log_to_stderr()
    source = Planning().view(source, options.subscription.topics)
    brokers, bounds = source.identities(), read_bounds(source, options)
    start, end = find_span(source, options, bounds, Losses(options.loss))
    _warn_of_retired_queues(source, bounds, options.subscription)
    ranges = (QueueRange(queue, start[queue], offset) for queue, offset in end.items())
    return partitions(source, options, ranges, brokers)


def partitions(
    source: MessageSource,
    options: ReadOptions,
    ranges: Iterable[QueueRange],
    brokers: Mapping[str, SourceIdentity],
) -> list[ReadPartition]:
    """Return the tasks for these ranges; a replay of the same ranges gets the same tasks.

    `brokers` are the identities of the stores, read before the ranges.
    """
    kept = sorted(
        (replace(part, epoch=brokers[part.queue.broker].epoch) for part in ranges if part.rows > 0),
        key=lambda part: (part.queue.broker, part),
    )
    sources = source.by_broker({part.queue.broker for part in kept})
    return [
        ReadPartition(sources[broker].target, Ranges(tuple(group)))
        for task in cut(kept, options.splitting, source)
        for broker, group in groupby(task, lambda part: part.queue.broker)
    ]


def _warn_of_retired_queues(
    source: MessageSource, bounds: Mapping[MessageQueue, QueueOffsets], asked: SubscribedTopics
) -> None:
    topics = [topic for topic in topics_of(bounds) if topic not in asked.queues]
    retired = source.retired(topics)
    for topic in topics_of(retired):
        queues = {queue: has for queue, has in retired.items() if queue.topic == topic}
        LOG.warning(
            "topic %r has fewer read queues than before: queues %s still hold %d messages,"
            " which a batch does not read unless the topic gets these queues again",
            topic,
            [queue.queue_id for queue in queues],
            sum(has.maximum - has.minimum for has in queues.values()),
        )


def _matching(
    source: MessageSource,
    existing: Mapping[str, TopicConfig],
    asked: SubscribedTopics,
    known: Collection[str] | None,
) -> list[str]:
    brokers = source.by_broker()
    matching = [
        name
        for name in existing
        if asked.covers(name)
        and not any(is_system_topic(name, broker, existing) for broker in brokers)
    ]
    names = [name for name in matching if existing[name].readable or name in (known or ())]
    if not names and known is not None and not known and not asked.wait:
        raise TopicNotFoundError(
            f"No topic of {source.target.describe()} has a name that fully matches"
            f" {asked.pattern!r}.",
            remedy=f"Topics: {', '.join(list(existing)[:_MAX_NAMED]) or 'none'}. System topics, "
            "and topics without read permission, never match a pattern.",
        )
    for name in names:
        _check_readable(existing[name])
    return names


def _check_readable(topic: TopicConfig) -> None:
    if not topic.readable:
        raise InvalidInputError(
            f"Topic {topic.name!r} does not permit reading (perm {topic.perm}).",
            remedy="Give it read permission: perm 4 or 6.",
            code="TOPIC_NOT_READABLE",
        )


def _check_assigned(
    asked: SubscribedTopics, bounds: Iterable[MessageQueue], topics: Iterable[str]
) -> None:
    """Raise QueueNotFoundError if `assign` names a queue that these topics do not have."""
    queues: dict[str, list[int]] = {}
    for queue in bounds:
        queues.setdefault(queue.topic, []).append(queue.queue_id)
    for topic in sorted(topics):
        existing = queues.get(topic, [])
        missing = [queue_id for queue_id in asked.queues.get(topic, ()) if queue_id not in existing]
        if missing:
            raise QueueNotFoundError(
                f"Option 'assign': topic {topic!r} has no queue {missing[0]}.",
                remedy=f"Its read queues are {', '.join(map(str, existing))}.",
            )


VIEW_TASK_BYTES = 64 * 1024 * 1024
"""Approximate bytes of the log that one task reads; a file of the log is never divided."""

VIEW_TASK_MESSAGES = 32_768
"""Maximum pending messages of one task."""


def view_partitions(source: MessageSource, options: ReadOptions) -> list[ReadPartition]:
    """Return the tasks that read the current state of a view."""
    is_pending = options.view in WAITING
    # Pending messages of all topics share their queues: the tasks skip those of other topics.
    topics = topics_to_read(source, options) if is_pending else options.subscription.topics
    kept = tuple(topics) if is_pending else ()
    tasks = []
    for broker_source in source.by_broker().values():
        parts = broker_source.plan_view(
            options.view,
            topics=topics,
            group=options.progress.group,
            skips_damage=options.skips_damage,
        )
        groups = group_by_weight(parts, [1], lambda part: [_share_of_task(part)])
        tasks += [ReadPartition(broker_source.target, ViewParts(group, kept)) for group in groups]
    return tasks


def _share_of_task(part: PlannedPart) -> float:
    if isinstance(part, PendingRange):
        return part.messages / VIEW_TASK_MESSAGES
    return part.weight / VIEW_TASK_BYTES
