"""Where each queue of a stream goes on: where it stopped, unless what comes there is gone.

What can have happened meanwhile, and where the policies go on, by the queue's present offsets:

    messages were deleted          skip: the first one that is left
    a crash has cut the log        skip: the cut; what was written since is new
    a queue ends before the stop   skip: its end
    a topic was created again      skip: its first message; offsets go on after the old ones
    a topic was deleted            all: where it ended, until it is created again
    a topic has fewer queues       nothing is lost: the others are read to their ends

    earliest: the queue's first message, so that some are read twice if it does not begin later
    latest: the queue's end
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyrocket import QueueOffsets, Store
from pyrocket.errors import DataLossError, LogTruncatedError, TopicRecreatedError

from pyspark_pyrocket.options.offsets import Bounds, QueueNumbers
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.planning.checkpoint import StreamOffset
from pyspark_pyrocket.planning.losses import GO_ON, Gap, Losses, out_of_range
from pyspark_pyrocket.planning.planner import read_bounds
from pyspark_pyrocket.planning.ranges import QueueRange

NEW_CHECKPOINT = "Start the query with a new checkpoint (and startingOffsets) to go on."


@dataclass(frozen=True)
class Resumed:
    """Where the queues of a stream go on.

    begin: the first offset to read of each queue; bounds: what the queues have.
    vanished: those of the bounds that their topics, or the store, no longer have.
    moved: whether one goes on elsewhere than it stopped, which has to be kept.
    """

    begin: QueueNumbers
    bounds: Bounds
    vanished: Bounds
    moved: bool


def resume(store: Store, options: ReadOptions, start: StreamOffset, losses: Losses) -> Resumed:
    """Return where the queues go on; queues that `start` does not know, at their first message.

    Raises DataLossError about what is gone unless the policy says otherwise.
    """
    check_store(store, start)
    changes = Changes.since(store, start)
    present = read_bounds(store, options, known=start.offsets)
    vanished = _vanished(store, options, start, present, losses)
    bounds = {
        topic: {**present.get(topic, {}), **vanished.get(topic, {})}
        for topic in {**present, **vanished}
    }
    begin: QueueNumbers = {}
    moved = False
    for topic, queues in bounds.items():
        known = start.offsets.get(topic, {})
        begin[topic] = {queue: known.get(queue, has.minimum) for queue, has in queues.items()}
        for queue in known.keys() & queues:
            gap = changes.gap(topic, queue, known[queue], queues[queue])
            if gap is not None:
                begin[topic][queue] = losses.settle(topic, queue, gap, queues[queue])
                moved = True
    return Resumed(begin, bounds, vanished, moved)


def what_remains(
    store: Store, end: StreamOffset, ranges: Iterable[QueueRange], losses: Losses
) -> Iterator[QueueRange]:
    """Yield those parts of the planned ranges that hold what they were planned for.

    All of them, unless their log was cut or their topic deleted since, which is seen by a replay.
    Raises DataLossError as `resume` does. What was deleted by age is for the tasks to find out.
    """
    check_store(store, end)
    changes = Changes.since(store, end)
    for each in ranges:
        until = changes.still_valid(each)
        if until < each.end:
            error = changes.error(each.topic, each.queue_id, each.end)
            if losses.policy.fails:
                raise error
            left = f"[{each.start}, {until}) of [{each.start}, {each.end}) is read"
            losses.note(each.topic, each.queue_id, each.end - until, left, error)
        yield QueueRange(each.topic, each.queue_id, each.start, until)


def check_store(store: Store, offset: StreamOffset) -> None:
    """Raise DataLossError (STORE_CHANGED) unless the offset counts in this store."""
    for what, then, now in (
        ("store", offset.store, store.uuid),
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
    """

    deleted: frozenset[str]
    recreated: frozenset[str]
    cuts: Mapping[tuple[str, int], int]

    @classmethod
    def since(cls, store: Store, offset: StreamOffset) -> "Changes":
        """Look at the store; the topics are those of the offset."""
        existing = store.topics()
        ids = {topic: existing[topic].topic_id for topic in offset.offsets if topic in existing}
        recreated = {
            topic
            for topic, now in ids.items()
            if now and offset.topic_ids.get(topic) and now != offset.topic_ids[topic]
        }
        deleted = frozenset(offset.offsets) - set(ids)
        return cls(deleted, frozenset(recreated), _cuts(store, offset))

    def gap(self, topic: str, queue: int, position: int, limits: QueueOffsets) -> Gap | None:
        """Return why a queue that stopped at `position` cannot go on there, or None."""
        if topic in self.recreated:
            # Its offsets go on after the old ones, unless nobody knew those any more.
            unread = position if position <= limits.maximum else limits.minimum
            return Gap(self.error(topic, queue, position), unread, max(unread, limits.minimum))
        cut = self.cuts.get((topic, queue), position)
        if cut < position:
            inside = min(max(cut, limits.minimum), limits.maximum)
            return Gap(self.error(topic, queue, position), cut, inside)
        if topic not in self.deleted:
            return out_of_range(f"Topic {topic!r}, queue {queue}", position, limits)
        if position == limits.maximum:
            return None
        return Gap(self.error(topic, queue, position), position, limits.maximum)

    def still_valid(self, each: QueueRange) -> int:
        """Return up to which offset a range holds what it was planned for."""
        if each.topic in self.recreated or each.topic in self.deleted:
            return each.start
        return max(each.start, min(each.end, self.cuts.get((each.topic, each.queue_id), each.end)))

    def error(self, topic: str, queue: int, position: int) -> DataLossError:
        """Return the error of a queue that was read, or planned, up to `position`."""
        if topic in self.recreated:
            return TopicRecreatedError(
                f"Topic {topic!r} was deleted and created again since the checkpoint was made.",
                remedy=f"{NEW_CHECKPOINT} {GO_ON}",
            )
        if topic in self.deleted:
            return _deleted(topic)
        return LogTruncatedError(
            f"A crash of the machine cut topic {topic!r} queue {queue} at offset "
            f"{self.cuts[topic, queue]}; the checkpoint has read up to {position}, and other "
            "messages may have those offsets now.",
            remedy=f"{NEW_CHECKPOINT} {GO_ON}",
        )


def _cuts(store: Store, offset: StreamOffset) -> dict[tuple[str, int], int]:
    if store.epoch == offset.epoch:
        return {}
    found = {
        (topic, queue): store.cut_since(offset.epoch, topic, queue)
        for topic, queues in offset.offsets.items()
        for queue in queues
    }
    return {key: cut for key, cut in found.items() if cut is not None}


def _deleted(topic: str) -> DataLossError:
    return DataLossError(
        f"Topic {topic!r} was deleted while it was read.",
        remedy=f"Take it out of the topics that are read. {GO_ON}",
        code="TOPIC_DELETED",
    )


def _vanished(
    store: Store, options: ReadOptions, start: StreamOffset, present: Bounds, losses: Losses
) -> dict[str, dict[int, QueueOffsets]]:
    """Return what queues still have that the query has read and that are no longer to be read.

    Raises DataLossError about a deleted topic that was asked for by name, even if all was read.
    """
    asked, existing = options.subscription, store.topics()
    vanished: dict[str, dict[int, QueueOffsets]] = {}
    for topic, queues in start.offsets.items():
        if not asked.covers(topic):
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
