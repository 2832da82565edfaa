"""Topic administration (`Store.topics`); each change holds the write lock."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyrocket.base.arguments import check_text, check_type, is_whole
from pyrocket.base.config import DEFAULT_QUEUES
from pyrocket.disk import io
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import Engine
from pyrocket.errors import InvalidInputError
from pyrocket.metadata.groups import GroupOffsets
from pyrocket.metadata.topics import TopicTypes, check_not_system, check_topic_name
from pyrocket.values.admin import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig


@translating_methods
class TopicAdmin:
    """The topics of one store. Changes raise StoreReadOnlyError if the store is read-only."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._layout, self._topics = engine, engine.layout, engine.reader.topics
        self._types = TopicTypes(engine.layout, engine.clock)

    def all(self) -> Mapping[str, TopicConfig]:
        """Return all topics by name, as a read-only snapshot."""
        return MappingProxyType(self._topics.all())

    def get(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError with the most similar name."""
        return self._topics.get(name)

    def create(
        self,
        name: str,
        *,
        read_queues: int = DEFAULT_QUEUES,
        write_queues: int = DEFAULT_QUEUES,
        perm: int = PERM_READ | PERM_WRITE,
        ordered: bool = False,
        exist_ok: bool = True,
    ) -> TopicConfig:
        """Create a topic. An existing topic is returned, or rejected without `exist_ok`."""
        topic = TopicConfig(name, read_queues, write_queues, perm, ordered)
        return self.create_many([topic], exist_ok=exist_ok)[0]

    def create_many(
        self, topics: Iterable[TopicConfig], *, exist_ok: bool = True
    ) -> list[TopicConfig]:
        """Create all topics or none; thousands of topics take little longer than one.

        Returns them in order, existing topics unchanged. Without `exist_ok`, an existing topic
        raises InvalidInputError (TOPIC_EXISTS). Raises TopicNameError.

            store.topics.create_many([TopicConfig(name, 4, 4) for name in ("orders", "bills")])
        """
        check_type(Iterable, "Use a list of pyrocket.TopicConfig.", topics=topics)
        wanted = list(topics)
        for topic in wanted:
            check_type(TopicConfig, "Use a pyrocket.TopicConfig(name, 4, 4).", topic=topic)
            check_topic_name(topic.name)
            _check_perm(topic.name, topic.perm)
        with self._engine.writer.exclusive():
            if not exist_ok:
                self._check_new(wanted)
            return self._engine.create_topics(wanted)

    def _check_new(self, topics: Sequence[TopicConfig]) -> None:
        known = self._topics.all()
        for topic in topics:
            if topic.name in known:
                raise InvalidInputError(
                    f"topic {topic.name!r} already exists.",
                    remedy="Use `store.topics.update` to change it.",
                    code="TOPIC_EXISTS",
                )

    def update(
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        ordered: bool | None = None,
    ) -> TopicConfig:
        """Change the given attributes; see `TopicConfig`.

        Another number of write queues changes the queue to which a sharding key is sent.
        """
        check_not_system(name)
        if perm is not None:
            _check_perm(name, perm)
        settings = {
            "read_queues": read_queues,
            "write_queues": write_queues,
            "perm": perm,
            "ordered": ordered,
        }
        given: Any = {field: value for field, value in settings.items() if value is not None}
        with self._engine.writer.exclusive():
            changed = replace(self._topics.get(name), **given)
            with self._engine.writer.changing_topics():
                return self._topics.put(changed)

    def message_type(self, name: str) -> str:
        """Return the type of a topic's messages, such as FIFO; empty if it accepts all types."""
        check_text(name=name)
        return self._types.of(name)

    def set_message_type(self, name: str, message_type: str) -> None:
        """Set which messages RocketMQ's clients may send to a topic: see `MESSAGE_TYPES`.

        Raises TopicNotFoundError, TopicNameError, InvalidInputError (MESSAGE_TYPE).
        """
        check_not_system(name)
        with self._engine.writer.exclusive():
            self._topics.put(self._topics.get(name))  # The table may lack the topic: see `Topics`.
            self._types.set(name, message_type)

    def delete(self, name: str) -> None:
        """Delete a topic, its queues and all groups' offsets in it.

        Its messages stay in the log until the log files are deleted. A new topic of the same name
        continues the old queue offsets and has another `topic_id`. System topics cannot be deleted:
        they contain pending messages.
        """
        check_not_system(name)
        with self._engine.writer.exclusive():
            queue_ids = self._queue_ids(self._topics.get(name))
            ends = {
                queue_id: self._engine.writer.dispatcher.next_offset(name, queue_id)
                for queue_id in queue_ids
            }
            # With this order, a crash leaves a topic that can be deleted again. The messages of a
            # deleted topic never reappear.
            self._topics.save_ends({name: ends})
            GroupOffsets(self._layout).drop(topic=name)
            self._engine.writer.structure_changed()
            with self._engine.writer.changing_topics():
                self._remove_queues(name)
                self._topics.remove(name)

    def _queue_ids(self, topic: TopicConfig) -> list[int]:
        """Return the ids of the topic's queues, and of former queues that are still on disk."""
        count = max(topic.read_queues, topic.write_queues)
        return sorted({*range(count), *self._engine.reader.files.queues.of_topic(topic.name)})

    def _remove_queues(self, name: str) -> None:
        self._engine.writer.files.queues.close()
        folder = self._layout.topic_queues(name)
        if folder.exists():
            doomed = self._layout.scratch / uuid.uuid4().hex
            io.rename(folder, doomed)
            io.sync_directory(folder.parent)
            io.remove_tree(doomed)


def _check_perm(name: str, perm: int) -> None:
    """Raise InvalidInputError (TOPIC_PERMISSION) unless `perm` is a RocketMQ permission."""
    if not is_whole(perm, 0, PERM_READ | PERM_WRITE | PERM_INHERIT):
        raise InvalidInputError(
            f"topic {name!r} cannot have the permission {perm!r}.",
            remedy=f"Use {PERM_READ} for reading, {PERM_WRITE} for writing, {PERM_INHERIT} for"
            " inheriting both, their sum, or 0.",
            code="TOPIC_PERMISSION",
        )
