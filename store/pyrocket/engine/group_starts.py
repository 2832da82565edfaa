"""Where consumer groups start in queues for which they have committed no offset."""

from collections.abc import Mapping

from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.engine.reader import Reader
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.metadata.group_starts import GroupStartFile
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.consuming import GroupStart
from pyrocket.values.topics import TopicConfig

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
    found, log_offset = known.maximum, start.log_offset
    if log_offset is None and start.time_ms is not None:
        config = TopicConfig(topic, queue_id + 1, queue_id + 1)
        found, log_offset = reader.offset_by_time(config, queue_id, start.time_ms), start.end_offset
    if log_offset is not None:
        queue = reader.files.queues.get(topic, queue_id)
        found = min(found, queue.min_offset(log_offset, known.maximum))
    return max(found, known.minimum)
