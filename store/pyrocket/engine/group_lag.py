"""The lag of consumer groups: the messages of a queue that a group has not consumed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.metadata.groups import Offsets


@dataclass(frozen=True)
class GroupLag:
    """The lag of a group in one queue, whose messages have the offsets [minimum, maximum).

    Attributes:
        group: The consumer group.
        topic: The topic; `%RETRY%` and the group's name for messages whose consumption failed.
        queue_id: The queue.
        committed: The next offset to consume; None before the first commit, and the lag is then
            the entire queue.
        minimum: The first offset of the queue.
        maximum: The next offset of the queue.
        delay_ms: The time since the first message that is not consumed was stored; 0 if all are.
    """

    group: str
    topic: str
    queue_id: int
    committed: int | None
    minimum: int
    maximum: int
    delay_ms: int = 0

    @property
    def start(self) -> int:
        """The offset of the first message that is not consumed; `maximum` if all are."""
        return min(max(self.committed or 0, self.minimum), self.maximum)

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed."""
        return self.maximum - self.start

    @property
    def lost(self) -> int:
        """The number of messages that were deleted before they were consumed."""
        return 0 if self.committed is None else max(self.minimum - self.committed, 0)

    @property
    def beyond_end(self) -> int:
        """How far `committed` exceeds the queue's end: above 0 only after a crash or a restore."""
        return max((self.committed or 0) - self.maximum, 0)


def positions(
    reader: Reader, offsets: Mapping[tuple[str, str], Offsets], group: str = ""
) -> Iterator[GroupLag]:
    """Yield the lags of a group, or of all groups, without delays, by group, topic and queue.

    offsets: The committed offsets by (topic, group).
    """
    queues = all_queues(reader)
    wanted = [key for key in offsets if group in ("", key[1])]
    for topic, name in sorted(wanted, key=lambda key: (key[1], key[0])):
        committed = offsets[topic, name]
        for queue_id in sorted({*queues.get(topic, ()), *committed}):
            has = reader.system_offsets(topic, queue_id)
            at = committed.get(queue_id)
            yield GroupLag(name, topic, queue_id, at, has.minimum, has.maximum)


def all_queues(reader: Reader) -> dict[str, list[int]]:
    """Return the queue ids of each topic: queues in the topic table, and queues that have files."""
    queues = {name: set(range(topic.read_queues)) for name, topic in reader.topics.all().items()}
    for name, queue_id in reader.queues_on_disk():
        queues.setdefault(name, set()).add(queue_id)
    return {name: sorted(ids) for name, ids in sorted(queues.items())}


def delay_ms(reader: Reader, one: GroupLag, now_ms: int) -> int:
    """Return the age of the first message of a lag; 0 if there is none, or if it is corrupt."""
    if not one.lag:
        return 0
    try:
        return max(now_ms - reader.store_time(one.topic, one.queue_id, one.start), 0)
    except (OffsetOutOfRangeError, StoreDamagedError):
        return 0
