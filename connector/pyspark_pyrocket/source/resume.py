"""Where each queue of a stream goes on: where it stopped, unless what comes there is gone.

What can have happened meanwhile, and where the policies go on, by the queue's present offsets:

    messages were deleted          skip: the first one that is left
    a crash has cut the log        skip: the cut; what was written since is new
    an older copy was restored     skip: the first message stored after the mark's store time, or
                                   the stop if that is before it
    a queue ends before the stop   skip: its end
    a topic was created again      skip: its first message; offsets go on after the old ones
    a topic was deleted            all: where it ended, until it is created again
    a topic has fewer queues       nothing is lost: the others are read to their ends

    earliest: the queue's first message, so that some are read twice if it does not begin later
    latest: the queue's end
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pyrocket import LogMark, QueueOffsets, Store
from pyrocket.errors import (
    DataLossError,
    LogTruncatedError,
    StoreUnavailableError,
    TopicRecreatedError,
)

from pyspark_pyrocket.options.positions import Bounds, QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import GO_ON, Gap, Losses, out_of_range
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.source.ranges import QueueRange
from pyspark_pyrocket.source.stream_offset import StreamOffset

_Queue = tuple[str, int]
"""Topic and queue id."""

NEW_CHECKPOINT = "Start the query with a new checkpoint (and startingOffsets) to go on."


WAITS = (
    "a process was killed while it recovered the store, and the checkpoint has read messages that"
    " were not durable for sure. The next process that opens the store for writing recovers it."
)


@dataclass(frozen=True)
class Resumed:
    """Where the queues of a stream go on.

    begin: the first offset to read of each queue; bounds: what the queues have.
    vanished: those of the bounds that their topics, or the store, no longer have.
    moved: whether one goes on elsewhere than it stopped, which has to be kept.
    stopped: up to where each queue of the start offset still holds what was read, also those that
    are not asked for any more.
    is_restored: whether the log is not the one that was read; no older mark or topic id counts.
    """

    begin: QueueNumbers
    bounds: Bounds
    vanished: Bounds
    moved: bool
    stopped: QueueNumbers
    is_restored: bool


def resume(store: Store, options: ReadOptions, start: StreamOffset, losses: Losses) -> Resumed:
    """Return where the queues go on; queues that `start` does not know, at their first message.

    Raises DataLossError about what is gone unless the policy says otherwise.
    """
    check_store(store, start)
    changes = Changes.since(store, start)
    changes.name_older_copy(losses)
    known_topics = [topic for topic, queues in start.offsets.items() if queues]
    present = read_bounds(store, options, known=known_topics)
    stopped = changes.still_read(start.offsets)
    vanished = _vanished(store, options, stopped, present, losses)
    bounds = {
        topic: {**present.get(topic, {}), **vanished.get(topic, {})}
        for topic in {**present, **vanished}
    }
    begin: QueueNumbers = {}
    moved = changes.is_restored
    for topic, queues in bounds.items():
        known = start.offsets.get(topic, {})
        begin[topic] = {queue: known.get(queue, has.minimum) for queue, has in queues.items()}
        for queue in known.keys() & queues:
            gap = changes.gap(topic, queue, known[queue], queues[queue])
            if gap is not None:
                begin[topic][queue] = losses.settle(topic, queue, gap, queues[queue])
                moved = True
    return Resumed(begin, bounds, vanished, moved, stopped, changes.is_restored)


def what_remains(
    store: Store, end: StreamOffset, ranges: Iterable[QueueRange], losses: Losses
) -> Iterator[QueueRange]:
    """Yield those parts of the planned ranges that hold what they were planned for.

    All of them, unless since then their log was cut, an older copy of it restored or their topic
    deleted, which is seen by a replay. Raises DataLossError as `resume` does. What was deleted by
    age is for the tasks to find out.
    """
    check_store(store, end)
    if waits_for_recovery(store, end):
        raise StoreUnavailableError(
            f"{store.path}: {WAITS}",
            remedy="Open it for writing once, then start the query again.",
            code="STORE_RECOVERING",
        )
    changes = Changes.since(store, end)
    changes.name_older_copy(losses)
    for each in ranges:
        until = changes.still_valid(each)
        if until < each.end:
            error = changes.error(each.topic, each.queue_id, each.end)
            if losses.policy.fails:
                raise error
            left = f"[{each.start}, {until}) of [{each.start}, {each.end}) is read"
            losses.note(each.topic, each.queue_id, each.end - until, left, error)
        yield QueueRange(each.topic, each.queue_id, each.start, until)


def waits_for_recovery(store: Store, offset: StreamOffset) -> bool:
    """Whether what the offset has read is not shown until the store has been recovered.

    That is no loss: a recovery that was interrupted shows only what was durable.
    """
    if not store.history.recovery_is_interrupted:
        return False
    try:
        return any(
            position > store.queue_range(topic, queue).maximum
            for topic, queues in offset.offsets.items()
            for queue, position in queues.items()
        )
    except StoreUnavailableError as error:
        if error.code != "STORE_RECOVERING":
            raise
        return True  # A queue was cut, and not completed.


def check_store(store: Store, offset: StreamOffset) -> None:
    """Raise DataLossError (STORE_CHANGED) unless the offset counts in this store."""
    for what, then, now in (
        ("store", offset.source.store, store.uuid),
        ("broker", offset.broker, store.broker_name),
    ):
        if then and now and then != now:
            raise DataLossError(
                f"The checkpoint counts in {what} {then}, but {store.path} is {what} {now}.",
                remedy=f"Point 'path' to the store it was made with. {NEW_CHECKPOINT}",
                code="STORE_CHANGED",
            )


@dataclass(frozen=True)
class Changes:
    """What happened to topics and log since an offset was taken.

    deleted, recreated: topics. cuts: topic and queue → where a recovery has cut it.
    lost_mark: the offset's mark, if the log does not hold it; then the log was cut, or the store is
    an older copy. shared: topic and queue → the first message stored after that mark; what is
    before it was there when the mark was taken. Empty while the mark holds.
    path, positions: the store, and where the queues of the offset stopped.
    """

    deleted: frozenset[str]
    recreated: frozenset[str]
    cuts: Mapping[_Queue, int]
    lost_mark: LogMark | None
    shared: Mapping[_Queue, int]
    path: Path
    positions: Mapping[_Queue, int]

    @classmethod
    def since(cls, store: Store, offset: StreamOffset) -> "Changes":
        """Look at the store; the topics are those of the offset."""
        existing = store.topics.all()
        ids = {topic: existing[topic].topic_id for topic in offset.offsets if topic in existing}
        recreated = {
            topic
            for topic, now in ids.items()
            if now and offset.topic_ids.get(topic) and now != offset.topic_ids[topic]
        }
        mark = offset.source.mark
        lost_mark = mark if mark is not None and store.history.holds(mark) is False else None
        return cls(
            deleted=frozenset(offset.offsets) - set(ids),
            recreated=frozenset(recreated),
            cuts=_cuts(store, offset),
            lost_mark=lost_mark,
            shared=_shared(store, offset, lost_mark) if lost_mark else {},
            path=store.path,
            positions={
                (topic, queue): position
                for topic, queues in offset.offsets.items()
                for queue, position in queues.items()
            },
        )

    @property
    def is_restored(self) -> bool:
        """Whether the log does not hold the newest message that was read."""
        return self.lost_mark is not None

    def name_older_copy(self, losses: Losses) -> None:
        """Raise LogTruncatedError, or warn, if the store is an older copy of the one that was read.

        A log that a crash has cut is not: that is said of each queue that it concerns.
        """
        was_cut = any(cut < self.positions[queue] for queue, cut in self.cuts.items())
        if self.lost_mark is None or was_cut:
            return
        error = self._older_copy(self.lost_mark)
        if losses.policy.fails:
            raise error
        losses.say_once(error.message)

    def still_read(self, offsets: QueueNumbers) -> QueueNumbers:
        """Return the offsets, each no later than its queue holds what was read."""
        return {
            topic: {queue: self._until(topic, queue, at) for queue, at in queues.items()}
            for topic, queues in offsets.items()
        }

    def gap(self, topic: str, queue: int, position: int, limits: QueueOffsets) -> Gap | None:
        """Return why a queue that stopped at `position` cannot go on there, or None."""
        if topic in self.recreated and not self.is_restored:
            # Its offsets go on after the old ones, unless nobody knew those any more.
            unread = position if position <= limits.maximum else limits.minimum
            return Gap(self.error(topic, queue, position), unread, max(unread, limits.minimum))
        until = self._until(topic, queue, position)
        if until < position:
            inside = min(max(until, limits.minimum), limits.maximum)
            return Gap(self.error(topic, queue, position), until, inside)
        if topic not in self.deleted:
            return out_of_range(f"Topic {topic!r}, queue {queue}", position, limits)
        if position == limits.maximum:
            return None
        return Gap(self.error(topic, queue, position), position, limits.maximum)

    def still_valid(self, each: QueueRange) -> int:
        """Return up to which offset a range holds what it was planned for."""
        is_recreated = each.topic in self.recreated and not self.is_restored
        if each.topic in self.deleted or is_recreated:
            return each.start
        return max(each.start, self._until(each.topic, each.queue_id, each.end))

    def error(self, topic: str, queue: int, position: int) -> DataLossError:
        """Return the error of a queue that was read, or planned, up to `position`."""
        if topic in self.recreated and not self.is_restored:
            return TopicRecreatedError(
                f"Topic {topic!r} was deleted and created again since the checkpoint was made.",
                remedy=f"{NEW_CHECKPOINT} {GO_ON}",
            )
        if topic in self.deleted and not self.is_restored:
            return _deleted(topic)
        cut = self.cuts.get((topic, queue), position)
        if cut < position:
            return LogTruncatedError(
                f"The log was cut for topic {topic!r} queue {queue} at offset {cut}, by a crash of "
                "the machine or because an older copy of the store was restored; the checkpoint "
                f"has read up to {position}, and other messages may have those offsets now.",
                remedy=f"{NEW_CHECKPOINT} {GO_ON}",
            )
        if self.lost_mark is not None and self.shared[topic, queue] < position:
            return self._older_copy(self.lost_mark)
        return _deleted(topic)

    def _until(self, topic: str, queue: int, position: int) -> int:
        """Return up to where, at most `position`, the queue holds what it held."""
        key = topic, queue
        return min(position, self.cuts.get(key, position), self.shared.get(key, position))

    def _older_copy(self, mark: LogMark) -> LogTruncatedError:
        stored = datetime.fromtimestamp(mark.store_timestamp / 1000, tz=timezone.utc)
        return LogTruncatedError(
            f"{self.path} is an older copy of the store that the checkpoint was made with: it does "
            "not have the newest message that was read, of "
            f"{stored.isoformat(timespec='milliseconds')} at log offset {mark.log_offset}.",
            remedy=f"Restore a newer copy. {NEW_CHECKPOINT} {GO_ON} If the store was not restored, "
            "that place is damaged: run `pyrocket verify`.",
        )


def _cuts(store: Store, offset: StreamOffset) -> dict[_Queue, int]:
    epoch = offset.source.epoch
    if store.history.epoch == epoch:
        return {}
    found = {
        (topic, queue): store.history.cut_since(epoch, topic, queue)
        for topic, queues in offset.offsets.items()
        for queue in queues
    }
    return {key: cut for key, cut in found.items() if cut is not None}


def _shared(store: Store, offset: StreamOffset, mark: LogMark) -> dict[_Queue, int]:
    """Return the first offset of each queue that was stored after the mark, or its end."""
    existing, shared = store.topics.all(), {}
    for topic, queues in offset.offsets.items():
        for queue in queues:
            has = store.queue_range(topic, queue)
            shared[topic, queue] = has.maximum
            if topic in existing and has.minimum < has.maximum:
                after = mark.store_timestamp + 1
                shared[topic, queue] = store.offset_by_time(topic, queue, after)
    return shared


def _deleted(topic: str) -> DataLossError:
    return DataLossError(
        f"Topic {topic!r} was deleted while it was read.",
        remedy=f"Take it out of the topics that are read. {GO_ON}",
        code="TOPIC_DELETED",
    )


def _vanished(
    store: Store, options: ReadOptions, stopped: QueueNumbers, present: Bounds, losses: Losses
) -> dict[str, dict[int, QueueOffsets]]:
    """Return what queues still have that the query has read and that are no longer to be read.

    Raises DataLossError about a deleted topic that was asked for by name, even if all was read.
    """
    asked, existing = options.subscription, store.topics.all()
    vanished: dict[str, dict[int, QueueOffsets]] = {}
    for topic, queues in stopped.items():
        if not queues or not asked.covers(topic):
            continue
        if topic not in existing and topic in asked.topics and not asked.wait:
            if losses.policy.fails:
                raise _deleted(topic)
            losses.say_once(f"topic {topic!r} is deleted; the query waits for it")
        lost = [queue for queue in queues if queue not in present.get(topic, {})]
        for queue in asked.chosen(topic, lost):
            has = store.queue_range(topic, queue)
            end = max(has.maximum, queues[queue])
            first = min(has.minimum, end) if topic in existing else end
            vanished.setdefault(topic, {})[queue] = QueueOffsets(first, end)
    return vanished
