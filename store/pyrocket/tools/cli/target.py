"""The interface between commands and a store: typed values in and out.

`DirectoryTarget` implements it for a store's directory. The commands use nothing else, so a broker
needs only another implementation.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from pyrocket.config import Retention
from pyrocket.errors import MessageNotFoundError
from pyrocket.message import Message, SendResult, StoredMessage
from pyrocket.tools.summaries import QueueLag, TopicInfo, lags_of, topic_of, topics_of

if TYPE_CHECKING:
    from pyrocket.store import Store

Sending = Generator[SendResult, None, None]


@dataclass(frozen=True)
class StoreInfo:
    """A store's identity, sizes and contents.

    store_id: empty for a directory that only Java has written. epoch: the number of recoveries
    that may have truncated the log. topics, messages: without system topics. log_start, log_end:
    log offsets in bytes. delay_levels: as RocketMQ's messageDelayLevel. retention: None if all
    messages are kept.
    """

    path: str
    store_id: str
    broker_name: str
    epoch: int
    topics: int
    messages: int
    groups: int
    log_start: int
    log_end: int
    log_file_bytes: int
    delay_levels: str
    retention: Retention | None


class Target(Protocol):
    """A store that commands read and change. All methods raise PyrocketError."""

    def info(self) -> StoreInfo:
        """Return the store's identity, sizes and contents."""
        ...

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long messages are kept; None keeps all."""
        ...

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name, system topics included."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises TopicNotFoundError naming the nearest."""
        ...

    def create_topic(self, name: str, queues: int, *, create_store: bool) -> None:
        """Create a topic, and with `create_store` its store if there is none.

        Raises InvalidInputError (TOPIC_EXISTS) if the topic exists.
        """
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its queues. Raises TopicNotFoundError naming the nearest."""
        ...

    def newest(self, topic: str, count: int, queue_id: int | None) -> list[StoredMessage]:
        """Return the newest messages of a topic or of one of its queues, the newest last."""
        ...

    def by_key(self, topic: str, key: str, count: int) -> list[StoredMessage]:
        """Return the newest messages that have a key, the newest last."""
        ...

    def by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """Return the message with a unique id or a broker's id, or None."""
        ...

    def send(self, messages: Iterable[Message], *, create_topic: bool) -> Sending:
        """Append the messages one by one, each after the previous result was taken.

        They are durable when the generator ends. Raises TopicNotFoundError without `create_topic`.
        """
        ...

    def groups(self) -> list[str]:
        """Return the names of the consumer groups."""
        ...

    def lag(self, group: str = "") -> list[QueueLag]:
        """Return the lag of a group, or of each, in the queues of its topics.

        A group without committed offsets has none. Raises GroupNotFoundError.
        """
        ...


def open_target(directory: str) -> Target:
    """Return the target that a command names; it is opened by each call of a method."""
    return DirectoryTarget(directory)


class DirectoryTarget:
    """A store's directory, opened by each call: for reading, or for writing if it changes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def info(self) -> StoreInfo:
        """Return the store's identity, sizes and contents."""
        from pyrocket.views.parts import LogPart

        with self._open() as store:
            plan = store.views.plan("commitlog")
            parts = [part for part in plan if isinstance(part, LogPart)]
            topics = [topic for topic in topics_of(store) if topic.kind == "user"]
            return StoreInfo(
                path=str(store.path),
                store_id=store.uuid,
                broker_name=store.broker_name,
                epoch=store.history.epoch,
                topics=len(topics),
                messages=sum(topic.messages for topic in topics),
                groups=len(store.groups.all()),
                log_start=min((part.start for part in parts), default=0),
                log_end=max((part.end for part in parts), default=0),
                log_file_bytes=store.config.log_file_bytes,
                delay_levels=store.config.delay_levels_text,
                retention=store.retention,
            )

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long messages are kept; None keeps all."""
        with self._open(write=True) as store:
            store.set_retention(retention)

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name, system topics included."""
        with self._open() as store:
            return list(topics_of(store))

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises TopicNotFoundError naming the nearest."""
        with self._open() as store:
            return topic_of(store, name)

    def create_topic(self, name: str, queues: int, *, create_store: bool) -> None:
        """Create a topic, and with `create_store` its store if there is none.

        Raises InvalidInputError (TOPIC_EXISTS) if the topic exists.
        """
        with self._open(write=True, create=create_store) as store:
            store.topics.create(name, read_queues=queues, write_queues=queues, exist_ok=False)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its queues. Raises TopicNotFoundError naming the nearest."""
        with self._open(write=True) as store:
            store.topics.delete(name)

    def newest(self, topic: str, count: int, queue_id: int | None) -> list[StoredMessage]:
        """Return the newest messages of a topic or of one of its queues, the newest last."""
        with self._open() as store:
            known = store.offsets(topic)
            if queue_id is not None:
                known = {queue_id: store.queue_range(topic, queue_id)}
            queues = (
                store.messages(topic, each, max(has.minimum, has.maximum - count))
                for each, has in known.items()
            )
            # Messages lie in the log in the order in which they were stored.
            return list(deque(merge(*queues, key=attrgetter("physical_offset")), count))

    def by_key(self, topic: str, key: str, count: int) -> list[StoredMessage]:
        """Return the newest messages that have a key, the newest last."""
        with self._open() as store:
            return store.lookup.query(store.topics.get(topic).name, key, max_messages=count)

    def by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """Return the message with a unique id or a broker's id, or None."""
        with self._open() as store, suppress(MessageNotFoundError):
            return store.lookup.by_id(store.topics.get(topic).name, msg_id)
        return None

    def send(self, messages: Iterable[Message], *, create_topic: bool) -> Sending:
        """Append the messages one by one, each after the previous result was taken.

        They are durable when the generator ends. Raises TopicNotFoundError without `create_topic`.
        """
        with self._open(write=True) as store:
            try:
                for message in messages:
                    if not create_topic:
                        store.topics.get(message.topic)
                    yield store.append(message)
            finally:
                store.flush()

    def groups(self) -> list[str]:
        """Return the names of the consumer groups."""
        with self._open() as store:
            return list(store.groups.all())

    def lag(self, group: str = "") -> list[QueueLag]:
        """Return the lag of a group, or of each, in the queues of its topics.

        A group without committed offsets has none. Raises GroupNotFoundError.
        """
        with self._open() as store:
            return lags_of(store, group)

    @contextmanager
    def _open(self, *, write: bool = False, create: bool = False) -> "Iterator[Store]":
        # These imports take half a second, which `--help` does not need.
        from pyrocket.store import Store

        with Store.open(self._directory, read_only=not write, create=create) as store:
            yield store
