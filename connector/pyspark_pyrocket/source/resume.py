"""Finds the offset at which each queue of a stream continues: without losses, where it stopped.

Possible changes since then, and the offset at which each policy continues:

    messages were deleted          skip: the first remaining message
    a queue was filled again       skip: the first message stored after the mark; only brokers of
                                   RocketMQ, whose topics have no ids
    a crash truncated the log      skip: the point of truncation; messages written since are new
    an older copy was restored     skip: the first message stored after the mark's store time, or
                                   the offset where the query stopped, if that is lower
    a queue ends before its offset skip: the queue's end
    a topic was created again      skip: its first message; offsets continue after the old ones. No
                                   loss if it was found by a pattern and had been read completely
    a topic was deleted            all: the last end, until the topic is created again
    a topic has fewer queues       no loss: the removed queues are read to their ends

    earliest: the queue's first message; messages that were read before may be read again
    latest: the queue's end
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from pyrocket import LogMark, MessageQueue, QueueOffsets, QueueRange, TopicConfig
from pyrocket.errors import (
    DataLossError,
    LogTruncatedError,
    StoreUnavailableError,
    TopicRecreatedError,
)

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.data_loss import HOW_TO_CONTINUE, Gap, Losses, out_of_range
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import is_asked, read_bounds
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import Bounds, BrokerSource, MessageSource

NEW_CHECKPOINT = "Start the query with a new checkpoint (and startingOffsets) to continue."
RECOVERY_MISSING = (
    "a process was killed while it recovered the store, and the query has read messages that"
    " may not be durable. The next process that opens the store for writing recovers it."
)


@dataclass(frozen=True)
class Resumed:
    """Where the queues of a stream continue.

    Attributes:
        begin: The first offset to read of each queue.
        bounds: The bounds of the queues, including `vanished`.
        vanished: The bounds of queues that are no longer read queues of an existing topic.
        moved: Whether a queue continues at another offset than it stopped at, which Spark has to
            save.
        stopped: For each queue of the start offset, the end of the read messages that still exist.
            Includes queues that the query no longer reads.
        restored: The brokers whose log is not the one that was read, so that older marks and topic
            ids are invalid.
    """

    begin: Offsets
    bounds: Bounds
    vanished: Bounds
    moved: bool
    stopped: Offsets
    restored: frozenset[str]


def resume(
    source: MessageSource, options: ReadOptions, start: StreamOffset, losses: Losses
) -> Resumed:
    """Return where the queues continue; queues that `start` lacks begin at their first message.

    Raises DataLossError for lost messages, depending on the policy.
    """
    check_store(source, start)
    changes = StoreChanges.since(source, start)
    changes.report_older_copy(losses)
    present = read_bounds(source, options, known=start.offsets)
    stopped = changes.still_read(start.offsets)
    vanished = _vanished(source, options, stopped, present, losses)
    bounds = {**present, **vanished}
    continued = _continued(changes, options.subscription, start.offsets, bounds)
    begin = Offsets()
    moved = bool(changes.restored)
    for queue, limits in bounds.items():
        begin[queue] = start.offsets.get(queue, limits.minimum)
        is_new = queue not in start.offsets
        if is_new and limits.minimum and queue.topic in start.offsets.topics:
            losses.warn_once(
                f"{queue} was added, and starts at {limits.minimum}: messages that the query has"
                " not read may have been deleted"
            )
        if is_new or (queue.topic, queue.broker) in continued:
            continue
        gap = changes.gap(queue, begin[queue], limits)
        if gap is not None:
            begin[queue] = losses.settle(queue, gap, limits)
            moved = True
    return Resumed(begin, bounds, vanished, moved, stopped, changes.restored)


def what_remains(
    source: MessageSource, end: StreamOffset, ranges: Iterable[QueueRange], losses: Losses
) -> Iterator[QueueRange]:
    """Yield the parts of the planned ranges that still have the planned messages.

    Messages can be missing only in a replay: if the log was truncated, an older copy was restored
    or a topic was deleted since the ranges were planned. Raises the same DataLossError as `resume`.
    The tasks detect messages that were deleted by retention.
    """
    check_store(source, end)
    if waits_for_recovery(source, end):
        raise StoreUnavailableError(
            f"{source.target.describe()}: {RECOVERY_MISSING}",
            remedy="Open the store for writing once, then start the query again.",
            code="STORE_RECOVERING",
        )
    changes = StoreChanges.since(source, end)
    changes.report_older_copy(losses)
    for part in ranges:
        until = changes.still_valid(part)
        if until < part.end:
            error = changes.error(part.queue, part.end)
            if losses.policy.fails:
                raise error
            left = f"[{part.start}, {until}) of [{part.start}, {part.end}) is read"
            losses.report(part.queue, part.end - until, left, error)
        yield part if until == part.end else replace(part, end=until)


def waits_for_recovery(source: MessageSource, offset: StreamOffset) -> bool:
    """Return whether messages that were read are invisible until the store has been recovered.

    That is not a loss: after an interrupted recovery only durable messages are visible.
    """
    if not source.is_recovering():
        return False
    try:
        bounds = source.queue_bounds(offset.offsets)
    except StoreUnavailableError as error:
        if error.code != "STORE_RECOVERING":
            raise
        return True  # A queue was truncated and its recovery did not complete.
    return any(position > bounds[queue].maximum for queue, position in offset.offsets.items())


def check_store(source: MessageSource, offset: StreamOffset) -> None:
    """Raise DataLossError (STORE_CHANGED) unless the offset is valid in this store.

    Raises TransportError if a broker of the offset cannot be found.
    """
    sources, now = source.by_broker(offset.broker_names), source.identities()
    for broker, then in offset.brokers.items():
        # An offset of version 1 without queues has no name of a broker.
        name = broker if broker in now else next(iter(now))
        place = sources[name].target.describe()
        for what, known, here in (("store", then.store, now[name].store), ("broker", broker, name)):
            if known and here and known != here:
                raise DataLossError(
                    f"The checkpoint belongs to {what} {known}, but {place} is {what} {here}.",
                    remedy="Read the store that the checkpoint was made with. " + NEW_CHECKPOINT,
                    code="STORE_CHANGED",
                )


@dataclass(frozen=True)
class StoreChanges:
    """What happened to topics and log since an offset was taken.

    Attributes:
        deleted: Topics that no broker has.
        recreated: Topics and their brokers.
        cuts: The offsets at which a recovery truncated queues.
        older_copies: Brokers whose log does not contain the mark of the offset, and the error: the
            log was truncated, or the store is an older copy.
        shared: The offset of the first message of each queue of these brokers stored after that
            mark; earlier messages existed when the mark was taken.
        positions: The offsets at which the queues stopped.
    """

    deleted: frozenset[str]
    recreated: frozenset[tuple[str, str]]
    cuts: Mapping[MessageQueue, int]
    older_copies: Mapping[str, LogTruncatedError]
    shared: Mapping[MessageQueue, int]
    positions: Offsets

    @classmethod
    def since(cls, source: MessageSource, offset: StreamOffset) -> "StoreChanges":
        """Compare an offset and its topics with the source."""
        sources = source.by_broker()
        refilled = _refilled(sources, offset)
        topics = {broker: broker_source.topics() for broker, broker_source in sources.items()}
        lost = {
            broker: mark
            for broker, broker_source in sources.items()
            if (mark := offset.mark(broker)) is not None and broker_source.holds(mark) is False
        }
        epochs = {broker: known.epoch for broker, known in offset.brokers.items()}
        return cls(
            deleted=frozenset(offset.topics).difference(*topics.values()),
            recreated=frozenset(_recreated(offset, topics)),
            cuts={**source.truncations(epochs, offset.offsets), **refilled},
            older_copies={broker: _older_copy(sources[broker], lost[broker]) for broker in lost},
            shared={
                queue: at
                for broker, mark in lost.items()
                for queue, at in _shared(sources[broker], offset.offsets.of_broker(broker), mark)
            },
            positions=offset.offsets,
        )

    @property
    def restored(self) -> frozenset[str]:
        """The brokers whose log lacks the newest message that was read."""
        return frozenset(self.older_copies)

    def report_older_copy(self, losses: Losses) -> None:
        """Raise LogTruncatedError, or warn, if a store is an older copy of the one that was read.

        A log that a crash truncated is not an older copy: each affected queue has its own error.
        """
        cut = {queue.broker for queue, at in self.cuts.items() if at < self.positions[queue]}
        for broker, error in self.older_copies.items():
            if broker in cut:
                continue
            if losses.policy.fails:
                raise error
            losses.warn_once(error.message)

    def still_read(self, offsets: Offsets) -> Offsets:
        """Return the offsets, each limited to the messages that its queue still has."""
        return Offsets({queue: self._until(queue, at) for queue, at in offsets.items()})

    def gap(self, queue: MessageQueue, position: int, limits: QueueOffsets) -> Gap | None:
        """Return why a queue that stopped at `position` cannot continue there, or None."""
        if self._is_recreated(queue):
            # A topic that is created again continues after its old offsets, if those were known.
            unread = position if position <= limits.maximum else limits.minimum
            return Gap(self.error(queue, position), unread, max(unread, limits.minimum))
        until = self._until(queue, position)
        if until < position:
            inside = min(max(until, limits.minimum), limits.maximum)
            return Gap(self.error(queue, position), until, inside)
        if queue.topic not in self.deleted:
            where = f"Topic {queue.topic!r}, queue {queue.queue_id}"
            return out_of_range(where, position, limits)
        if position == limits.maximum:
            return None
        return Gap(self.error(queue, position), position, limits.maximum)

    def still_valid(self, each: QueueRange) -> int:
        """Return the offset up to which a range still has the planned messages."""
        if each.queue.topic in self.deleted or self._is_recreated(each.queue):
            return each.start
        return max(each.start, self._until(each.queue, each.end))

    def error(self, queue: MessageQueue, position: int) -> DataLossError:
        """Return the error for a queue that was read, or planned, up to `position`."""
        topic = queue.topic
        if self._is_recreated(queue):
            return TopicRecreatedError(
                f"Topic {topic!r} was deleted and created again since the checkpoint was made.",
                remedy=f"{NEW_CHECKPOINT} {HOW_TO_CONTINUE}",
            )
        older_copy = self.older_copies.get(queue.broker)
        if topic in self.deleted and older_copy is None:
            return _deleted(topic)
        cut = self.cuts.get(queue, position)
        if cut < position:
            return LogTruncatedError(
                f"The log was truncated for {queue} at offset {cut}, by a machine crash or because "
                "an older copy of the store was restored. The query had read up to offset "
                f"{position}; other messages may have those offsets now.",
                remedy=f"{NEW_CHECKPOINT} {HOW_TO_CONTINUE}",
            )
        if older_copy is not None and self.shared[queue] < position:
            return older_copy
        return _deleted(topic)

    def _is_recreated(self, queue: MessageQueue) -> bool:
        """Whether the topic is another one, in a log that has all messages that were read."""
        return (queue.topic, queue.broker) in self.recreated and (
            queue.broker not in self.older_copies
        )

    def _until(self, queue: MessageQueue, position: int) -> int:
        """Return the offset, at most `position`, up to which the queue is unchanged."""
        return min(position, self.cuts.get(queue, position), self.shared.get(queue, position))


def _refilled(sources: Mapping[str, BrokerSource], offset: StreamOffset) -> dict[MessageQueue, int]:
    """Return the queues of brokers without epochs that were emptied and filled again."""
    found: dict[MessageQueue, int] = {}
    for broker, one in sources.items():
        ask, mark = getattr(one, "refilled", None), offset.mark(broker)
        if ask is not None and mark is not None:
            found |= ask(offset.offsets.of_broker(broker), mark)
    return found


def _recreated(
    offset: StreamOffset, topics: Mapping[str, Mapping[str, TopicConfig]]
) -> Iterator[tuple[str, str]]:
    """Yield the topics of an offset that have another id now, each with its broker."""
    for topic, ids in offset.topic_ids.items():
        for broker, then in ids.items():
            now = topics.get(broker, {}).get(topic)
            if now is not None and now.topic_id and then and now.topic_id != then:
                yield topic, broker


def _older_copy(source: BrokerSource, mark: LogMark) -> LogTruncatedError:
    stored = datetime.fromtimestamp(mark.store_timestamp / 1000, tz=timezone.utc)
    return LogTruncatedError(
        f"{source.target.describe()} is an older copy of the store that the checkpoint was made "
        "with: it lacks the newest message that was read, which was stored at "
        f"{stored.isoformat(timespec='milliseconds')} at log offset {mark.log_offset}.",
        remedy=f"Restore a newer copy. {NEW_CHECKPOINT} {HOW_TO_CONTINUE} If the store was not "
        "restored, the log is corrupt at that offset: run `pyrocket verify`.",
    )


def _shared(
    source: BrokerSource, offsets: Offsets, mark: LogMark
) -> Iterable[tuple[MessageQueue, int]]:
    """Return the first offset of each queue that was stored after the mark, or its end."""
    existing, bounds = source.topics(), source.queue_bounds(offsets)
    after = {
        queue: mark.store_timestamp + 1
        for queue, has in bounds.items()
        if queue.topic in existing and has.minimum < has.maximum
    }
    return Offsets.ends(bounds).merge(source.offsets_at(after)).items()


def _continued(
    changes: StoreChanges, asked: SubscribedTopics, offsets: Offsets, bounds: Bounds
) -> set[tuple[str, str]]:
    """Return the recreated topics, with their brokers, that continue where the query stopped.

    The query had read such a topic completely, and was allowed to lose it: see `_vanished`. A topic
    that starts at 0 again may have lost messages.
    """
    continued = set()
    for topic, broker in changes.recreated:
        read = {
            queue: at
            for queue, at in offsets.of_broker(broker).items()
            if queue.topic == topic and queue in bounds
        }
        may_vanish = asked.wait or topic not in asked.topics
        is_next = any(read.values()) and all(
            bounds[queue].minimum == at for queue, at in read.items()
        )
        if may_vanish and is_next and broker not in changes.older_copies:
            continued.add((topic, broker))
    return continued


def _deleted(topic: str) -> DataLossError:
    return DataLossError(
        f"Topic {topic!r} was deleted while the query was reading it.",
        remedy=f"Remove it from the topics to read. {HOW_TO_CONTINUE}",
        code="TOPIC_DELETED",
    )


def _vanished(
    source: MessageSource, options: ReadOptions, stopped: Offsets, present: Bounds, losses: Losses
) -> dict[MessageQueue, QueueOffsets]:
    """Return the bounds of queues that the query has read and that are no longer read queues.

    Raises DataLossError for a deleted topic that `subscribe` names, even if all was read.
    """
    asked, existing = options.subscription, source.topics()
    covered = dict.fromkeys(topic for topic in stopped.topics if asked.covers(topic))
    for topic in covered:
        if topic not in existing and topic in asked.topics and not asked.wait:
            if losses.policy.fails:
                raise _deleted(topic)
            losses.warn_once(f"topic {topic!r} was deleted; the query waits until it exists again")
    lost = [queue for queue in stopped.of_topics(covered) if queue not in present]
    vanished = {}
    for queue, has in source.queue_bounds([gone for gone in lost if is_asked(asked, gone)]).items():
        end = max(has.maximum, stopped[queue])
        first = min(has.minimum, end) if queue.topic in existing else end
        vanished[queue] = QueueOffsets(first, end)
    return vanished
