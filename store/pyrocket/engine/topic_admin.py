"""Making, changing and deleting topics, each in one section so that all processes agree."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

from pyrocket.arguments import check_type, is_whole
from pyrocket.disk import io
from pyrocket.engine.engine import Engine
from pyrocket.errors import InvalidInputError
from pyrocket.metadata.groups import drop_topic_offsets
from pyrocket.metadata.topics import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    check_not_system,
    check_topic_name,
)


class TopicAdmin:
    """Changes the topics of a store that is open for writing."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._layout, self._topics = engine, engine.layout, engine.reader.topics

    def create(self, topics: Sequence[TopicConfig], *, exist_ok: bool) -> list[TopicConfig]:
        """Make the topics, all at once; those that exist are returned as they are, or refused."""
        for topic in topics:
            check_type(TopicConfig, "Use a pyrocket.TopicConfig(name, 4, 4).", topic=topic)
            check_topic_name(topic.name)
            _check_perm(topic.name, topic.perm)
        with self._engine.writer.exclusive():
            if not exist_ok:
                self._check_new(topics)
            made, there = self._topics.create(topics)
            if len(there) < len({topic.name for topic in topics}):
                self._engine.writer.structure_changed()
            return made

    def _check_new(self, topics: Sequence[TopicConfig]) -> None:
        known = self._topics.all()
        for topic in topics:
            if topic.name in known:
                raise InvalidInputError(
                    f"topic {topic.name!r} exists.",
                    remedy="Use update_topic to change it.",
                    code="TOPIC_EXISTS",
                )

    def update(
        self, name: str, read_queues: int | None, write_queues: int | None, perm: int | None
    ) -> TopicConfig:
        """Change what is not None."""
        check_not_system(name)
        if perm is not None:
            _check_perm(name, perm)
        with self._engine.writer.exclusive():
            known = self._topics.get(name)
            changed = replace(
                known,
                read_queues=known.read_queues if read_queues is None else read_queues,
                write_queues=known.write_queues if write_queues is None else write_queues,
                perm=known.perm if perm is None else perm,
            )
            return self._save(changed)

    def delete(self, name: str) -> None:
        """Remove the topic, its queues and the groups' offsets in it; its messages stay.

        System topics are refused: messages wait in them.
        """
        check_not_system(name)
        with self._engine.writer.exclusive():
            queue_ids = self._queue_ids(self._topics.get(name))
            ends = {
                queue_id: self._engine.writer.next_offset(name, queue_id) for queue_id in queue_ids
            }
            # In this order an end in the middle leaves a topic that can be deleted again, never
            # one that is gone but whose messages come back.
            self._topics.note_ends(name, ends)
            drop_topic_offsets(self._layout, name)
            self._engine.writer.structure_changed()
            self._remove_queues(name)
            self._topics.remove(name)
            self._engine.writer.structure_changed()

    def _queue_ids(self, topic: TopicConfig) -> list[int]:
        """Return the queues the topic has or, before it shrank, had."""
        count = max(topic.read_queues, topic.write_queues)
        folder = self._layout.topic_queues(topic.name)
        on_disk = (int(path.name) for path in folder.glob("*") if path.name.isdigit())
        return sorted({*range(count), *on_disk})

    def _remove_queues(self, name: str) -> None:
        self._engine.writer.forget_queues()
        folder = self._layout.topic_queues(name)
        if folder.exists():
            grave = self._layout.scratch / uuid.uuid4().hex
            io.rename(folder, grave)
            io.sync_directory(folder.parent)
            io.remove_tree(grave)

    def _save(self, topic: TopicConfig) -> TopicConfig:
        saved = self._topics.put(topic)
        self._engine.writer.structure_changed()
        return saved


def _check_perm(name: str, perm: int) -> None:
    """Refuse what is no permission of RocketMQ's; what a broker has given a topic stays."""
    if not is_whole(perm, 0, PERM_READ | PERM_WRITE | PERM_INHERIT):
        raise InvalidInputError(
            f"topic {name!r} cannot have the permission {perm!r}.",
            remedy=f"Use {PERM_READ} for reading, {PERM_WRITE} for writing, {PERM_INHERIT} for"
            " passing both on, their sum, or 0.",
            code="TOPIC_PERMISSION",
        )
