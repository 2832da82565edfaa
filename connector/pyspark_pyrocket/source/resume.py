"""Finds the offset at which each queue of a stream continues: without losses, where it stopped.

Possible changes since then, and the offset at which each policy continues:

    messages were deleted          skip: the first remaining message
    a crash truncated the log      skip: the point of truncation; messages written since are new
    an older copy was restored     skip: the first message stored after the mark's store time, or
                                   the offset where the query stopped, if that is lower
    a queue ends before its offset skip: the queue's end
    a topic was created again      skip: its first message; offsets continue after the old ones
    a topic was deleted            all: the last end, until the topic is created again
    a topic has fewer queues       no loss: the removed queues are read to their ends

    earliest: the queue's first message; messages that were read before may be read again
    latest: the queue's end
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from pyrocket import LogMark, MessageQueue, QueueOffsets, QueueRange
from pyrocket.errors import (
    DataLossError,
    LogTruncatedError,
    StoreUnavailableError,
    TopicRecreatedError,
)

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import HOW_TO_CONTINUE, Gap, Losses, out_of_range
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import is_asked, read_bounds
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import Bounds, MessageSource

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
        is_restored: Whether the log is not the one that was read, so that older marks and topic
            ids are invalid.
    """

    begin: Offsets
    bounds: Bounds
    vanished: Bounds
    moved: bool
    stopped: Offsets
    is_restored: bool


def resume(
    source: MessageSource, options: ReadOptions, start: StreamOffset, losses: Losses
) -> Resumed:
    """Return where the queues continue; queues that `start` lacks begin at their first message.

    Raises DataLossError for lost messages, depending on the policy.
    """
    check_store(source, start)
    changes = Changes.since(source, start)
    changes.report_older_copy(losses)
    present = read_bounds(source, options, known=start.offsets.topics)
    stopped = changes.still_read(start.offsets)
    vanished = _vanished(source, options, stopped, present, losses)
    bounds = {**present, **vanished}
    begin = Offsets()
    moved = changes.is_restored
    for queue, limits in bounds.items():
        begin[queue] = start.offsets.get(queue, limits.minimum)
        gap = changes.gap(queue, begin[queue], limits) if queue in start.offsets else None
        if gap is not None:
            begin[queue] = losses.settle(queue, gap, limits)
            moved = True
    return Resumed(begin, bounds, vanished, moved, stopped, changes.is_restored)


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
    changes = Changes.since(source, end)
    changes.report_older_copy(losses)
    for each in ranges:
        until = changes.still_valid(each)
        if until < each.end:
            error = changes.error(each.queue, each.end)
            if losses.policy.fails:
                raise error
            left = f"[{each.start}, {until}) of [{each.start}, {each.end}) is read"
            losses.report(each.queue, each.end - until, left, error)
        yield each if until == each.end else replace(each, end=until)


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
    """Raise DataLossError (STORE_CHANGED) unless the offset is valid in this store."""
    ((broker, identity),) = source.identities().items()
    place = source.target.describe()
    for what, then, now in (
        ("store", offset.source.store, identity.store),
        ("broker", offset.broker, broker),
    ):
        if then and now and then != now:
            raise DataLossError(
                f"The checkpoint belongs to {what} {then}, but {place} is {what} {now}.",
                remedy=f"Read the store that the checkpoint was made with. {NEW_CHECKPOINT}",
                code="STORE_CHANGED",
            )


@dataclass(frozen=True)
class Changes:
    """What happened to topics and log since an offset was taken.

    Attributes:
        deleted, recreated: Topics.
        cuts: The offsets at which a recovery truncated queues.
        lost_mark: The offset's mark, if the log does not contain it; then the log was truncated, or
            the store is an older copy.
        shared: The offset of the first message of each queue stored after that mark; earlier
            messages existed when the mark was taken. Empty if the log contains the mark.
        place: The target's description, for errors.
        positions: The offsets at which the queues stopped.
    """

    deleted: frozenset[str]
    recreated: frozenset[str]
    cuts: Mapping[MessageQueue, int]
    lost_mark: LogMark | None
    shared: Mapping[MessageQueue, int]
    place: str
    positions: Offsets

    @classmethod
    def since(cls, source: MessageSource, offset: StreamOffset) -> "Changes":
        """Compare an offset and its topics with the source."""
        existing = source.topics()
        ids = {topic: existing[topic].topic_id for topic in offset.topics if topic in existing}
        recreated = {
            topic
            for topic, now in ids.items()
            if now and offset.topic_ids.get(topic) and now != offset.topic_ids[topic]
        }
        mark = offset.source.mark
        lost_mark = mark if mark is not None and source.holds(mark) is False else None
        return cls(
            deleted=frozenset(offset.topics) - set(ids),
            recreated=frozenset(recreated),
            cuts=source.truncations({offset.broker: offset.source.epoch}, offset.offsets),
            lost_mark=lost_mark,
            shared=_shared(source, offset, lost_mark) if lost_mark else {},
            place=source.target.describe(),
            positions=offset.offsets,
        )

    @property
    def is_restored(self) -> bool:
        """Whether the log lacks the newest message that was read."""
        return self.lost_mark is not None

    def report_older_copy(self, losses: Losses) -> None:
        """Raise LogTruncatedError, or warn, if the store is an older copy of the one that was read.

        A log that a crash truncated is not an older copy: each affected queue has its own error.
        """
        was_cut = any(cut < self.positions[queue] for queue, cut in self.cuts.items())
        if self.lost_mark is None or was_cut:
            return
        error = self._older_copy(self.lost_mark)
        if losses.policy.fails:
            raise error
        losses.warn_once(error.message)

    def still_read(self, offsets: Offsets) -> Offsets:
        """Return the offsets, each limited to the messages that its queue still has."""
        return Offsets({queue: self._until(queue, at) for queue, at in offsets.items()})

    def gap(self, queue: MessageQueue, position: int, limits: QueueOffsets) -> Gap | None:
        """Return why a queue that stopped at `position` cannot continue there, or None."""
        if queue.topic in self.recreated and not self.is_restored:
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
        topic = each.queue.topic
        if topic in self.deleted or (topic in self.recreated and not self.is_restored):
            return each.start
        return max(each.start, self._until(each.queue, each.end))

    def error(self, queue: MessageQueue, position: int) -> DataLossError:
        """Return the error for a queue that was read, or planned, up to `position`."""
        topic = queue.topic
        if topic in self.recreated and not self.is_restored:
            return TopicRecreatedError(
                f"Topic {topic!r} was deleted and created again since the checkpoint was made.",
                remedy=f"{NEW_CHECKPOINT} {HOW_TO_CONTINUE}",
            )
        if topic in self.deleted and not self.is_restored:
            return _deleted(topic)
        cut = self.cuts.get(queue, position)
        if cut < position:
            return LogTruncatedError(
                f"The log was truncated for {queue} at offset {cut}, by a machine crash or because "
                "an older copy of the store was restored. The query had read up to offset "
                f"{position}; other messages may have those offsets now.",
                remedy=f"{NEW_CHECKPOINT} {HOW_TO_CONTINUE}",
            )
        if self.lost_mark is not None and self.shared[queue] < position:
            return self._older_copy(self.lost_mark)
        return _deleted(topic)

    def _until(self, queue: MessageQueue, position: int) -> int:
        """Return the offset, at most `position`, up to which the queue is unchanged."""
        return min(position, self.cuts.get(queue, position), self.shared.get(queue, position))

    def _older_copy(self, mark: LogMark) -> LogTruncatedError:
        stored = datetime.fromtimestamp(mark.store_timestamp / 1000, tz=timezone.utc)
        return LogTruncatedError(
            f"{self.place} is an older copy of the store that the checkpoint was made with: it "
            "lacks the newest message that was read, which was stored at "
            f"{stored.isoformat(timespec='milliseconds')} at log offset {mark.log_offset}.",
            remedy=f"Restore a newer copy. {NEW_CHECKPOINT} {HOW_TO_CONTINUE} If the store was not "
            "restored, the log is corrupt at that offset: run `pyrocket verify`.",
        )


def _shared(source: MessageSource, offset: StreamOffset, mark: LogMark) -> dict[MessageQueue, int]:
    """Return the first offset of each queue that was stored after the mark, or its end."""
    existing, bounds = source.topics(), source.queue_bounds(offset.offsets)
    after = {
        queue: mark.store_timestamp + 1
        for queue, has in bounds.items()
        if queue.topic in existing and has.minimum < has.maximum
    }
    return {**Offsets.ends(bounds), **source.offsets_at(after)}


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
    for queue, has in source.queue_bounds([each for each in lost if is_asked(asked, each)]).items():
        end = max(has.maximum, stopped[queue])
        first = min(has.minimum, end) if queue.topic in existing else end
        vanished[queue] = QueueOffsets(first, end)
    return vanished
