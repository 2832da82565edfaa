"""Where groups start without a committed offset, and their lag: the messages not yet consumed."""

from collections.abc import Iterator, Mapping

from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.metadata.group_starts import GroupStartFile
from pyrocket.metadata.groups import GroupOffsets, OffsetsByQueue
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.admin import GroupLag, TopicConfig
from pyrocket.values.consuming import GroupStart

EARLIEST = GroupStart(0, 0)
"""The start before all messages."""


@translating_methods
class GroupStartTable:
    """The starts of the groups of one store. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._reader = engine, engine.reader
        self._file, self._offsets = GroupStartFile(engine.layout), GroupOffsets(engine.layout)

    def of(self, group: str) -> Mapping[str, GroupStart]:
        """Return the starts of a group by topic. Raises StoreDamagedError."""
        return self._file.all().get(group, {})

    def end(self) -> GroupStart:
        """Return the published end of the log and the time; everything before is flushed.

        Otherwise a recovery could truncate the log, and messages stored later could precede a start
        at this end.
        """
        end = GroupStart(self._reader.position().published, self._engine.clock())
        self._engine.writer.flush()
        return end

    def add(self, group: str, starts: Mapping[str, GroupStart]) -> None:
        """Store the starts of a group in topics in which it has none, durably and all at once.

        An empty start becomes the end of the log. A group that has committed offsets in a topic has
        consumed it with a release without starts: it starts before all messages. Retry topics have
        no starts. Raises TopicNameError, StoreDamagedError.
        """
        known = self.of(group)
        new = {
            topic: start
            for topic, start in starts.items()
            if topic not in known and not topic.startswith(RETRY_PREFIX)
        }
        if not new:
            return
        for topic in new.keys() - self._reader.topics.all():
            check_topic_name(topic)
        end = self.end()
        with self._engine.writer.exclusive():
            consumed = {topic for topic, name in self._offsets.all() if name == group}
            self._file.add(
                group,
                {
                    topic: EARLIEST if topic in consumed else start.stored_at(end)
                    for topic, start in new.items()
                },
            )

    def first_offset(self, topic: str, queue_id: int, start: GroupStart) -> int:
        """Return the offset at which a queue is consumed; see the function `first_offset`."""
        return first_offset(self._reader, topic, queue_id, start)


def first_offset(reader: Reader, topic: str, queue_id: int, start: GroupStart) -> int:
    """Return the offset of a queue's first message at or after a start.

    This is the maximum if there is none, and for an empty start. Raises StoreDamagedError.
    """
    known = reader.system_offsets(topic, queue_id)
    first, log_offset = known.maximum, start.log_offset
    if log_offset is None and start.time_ms is not None:
        config = TopicConfig(topic, queue_id + 1, queue_id + 1)
        first, log_offset = reader.offset_by_time(config, queue_id, start.time_ms), start.end_offset
    if log_offset is not None:
        queue = reader.files.queues.get(topic, queue_id)
        first = min(first, queue.min_offset(log_offset, known.maximum))
    return max(first, known.minimum)


def positions(
    reader: Reader,
    offsets: Mapping[tuple[str, str], OffsetsByQueue],
    starts: Mapping[str, Mapping[str, GroupStart]],
    group: str = "",
) -> Iterator[GroupLag]:
    """Yield the lags of a group, or of all groups, without delays, by group, topic and queue.

    offsets: The committed offsets by (topic, group).
    starts: Where groups start in queues without a committed offset, by group and topic.
    """
    queues = all_queues(reader)
    places = {*offsets, *((topic, name) for name in starts for topic in starts[name])}
    wanted = [key for key in places if group in ("", key[1])]
    for topic, name in sorted(wanted, key=lambda key: (key[1], key[0])):
        committed = offsets.get((topic, name), {})
        start = starts.get(name, {}).get(topic, EARLIEST)
        for queue_id in sorted({*queues.get(topic, ()), *committed}):
            has = reader.system_offsets(topic, queue_id)
            at = committed.get(queue_id)
            first = first_offset(reader, topic, queue_id, start) if at is None else 0
            yield GroupLag(name, topic, queue_id, at, has.minimum, has.maximum, first=first)


def all_queues(reader: Reader) -> dict[str, list[int]]:
    """Return the queue ids of each topic: queues in the topic table, and queues that have files."""
    queues = {name: set(range(topic.read_queues)) for name, topic in reader.topics.all().items()}
    for name, queue_id in reader.files.queues.on_disk():
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
