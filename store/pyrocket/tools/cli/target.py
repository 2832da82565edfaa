"""What the commands ask of a store: typed values in and out.

`DirectoryTarget` answers from a store's directory. The commands know this interface only, so that
they work for a broker as soon as one answers it.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pyrocket.config import Retention
from pyrocket.errors import MessageNotFoundError
from pyrocket.message import Message, SendResult, StoredMessage

if TYPE_CHECKING:
    from pyrocket.store import Store
    from pyrocket.views.parts import ViewName

Sending = Generator[SendResult, None, None]
TopicKind = Literal["user", "retry", "dead-letter", "system"]


@dataclass(frozen=True)
class StoreInfo:
    """What a store is and holds.

    store_id is empty for a directory that only Java has written. epoch: the number of recoveries
    that may have cut the log. topics, messages: without RocketMQ's own. log_start, log_end: offsets
    of the log, bytes. delay_levels: as RocketMQ's messageDelayLevel.
    retention: None where all messages are kept.
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


@dataclass(frozen=True)
class QueueInfo:
    """A queue of a topic: the offsets [minimum, maximum) are there.

    bytes: about what they take in the log. first, last: when the oldest and the newest was stored.
    """

    queue_id: int
    minimum: int
    maximum: int
    bytes: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True)
class TopicInfo:
    """A topic and its queues by id, empty ones too; the sums are those of `queues`.

    A topic without an entry in the topic table has 0 read and write queues.
    """

    name: str
    kind: TopicKind
    perm: int
    read_queues: int
    write_queues: int
    messages: int
    bytes: int
    first: datetime | None
    last: datetime | None
    queues: tuple[QueueInfo, ...]


@dataclass(frozen=True)
class QueueLag:
    """How far a group is in a queue: `lag` messages are left, of about `bytes` in the log.

    committed: the next offset to consume, None where nothing was committed, and all counts. lost:
    messages that were deleted before they were consumed. beyond_end: how far `committed` lies
    beyond the queue's end, as after a crash or a restore. behind_ms: the age of the oldest that is
    left.
    """

    group: str
    topic: str
    queue_id: int
    committed: int | None
    minimum: int
    maximum: int
    lag: int
    bytes: int
    lost: int
    beyond_end: int
    behind_ms: int


class Target(Protocol):
    """A store that commands look at and change. All methods raise PyrocketError."""

    def info(self) -> StoreInfo:
        """Return what the store is and holds."""
        ...

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long every writer keeps messages; None keeps all."""
        ...

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name, RocketMQ's own too."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises TopicNotFoundError naming the nearest."""
        ...

    def create_topic(self, name: str, queues: int, *, create_store: bool) -> None:
        """Make a topic, and its store with `create_store`. Raises InvalidInputError if it is there.

        TOPIC_EXISTS is the code of that error.
        """
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
        """Append the messages one by one, each when the result of the one before is taken.

        They are durable when the generator ends. Raises TopicNotFoundError without `create_topic`.
        """
        ...

    def groups(self) -> list[str]:
        """Return the names of the consumer groups."""
        ...

    def lag(self, group: str = "") -> list[QueueLag]:
        """Return how far a group, or each, is in the queues of its topics.

        A group that has committed nothing has no rows. Raises GroupNotFoundError.
        """
        ...


def open_target(directory: str) -> Target:
    """Return the target that a command names. It is opened when it is asked something."""
    return DirectoryTarget(directory)


class DirectoryTarget:
    """A store's directory, opened for each call: for reading, or for writing where it changes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def info(self) -> StoreInfo:
        """Return what the store is and holds."""
        from pyrocket.views.parts import LogPart

        with self._open() as store:
            plan = store.views.plan("commitlog")
            parts = [part for part in plan if isinstance(part, LogPart)]
            topics = [topic for topic in _topics(store) if topic.kind == "user"]
            return StoreInfo(
                path=str(store.path),
                store_id=store.uuid,
                broker_name=store.broker_name,
                epoch=store.epoch,
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
        """Set how long every writer keeps messages; None keeps all."""
        with self._open(write=True) as store:
            store.set_retention(retention)

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name, RocketMQ's own too."""
        with self._open() as store:
            return list(_topics(store))

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises TopicNotFoundError naming the nearest."""
        with self._open() as store:
            found = next(_topics(store, name), None)
            if found is not None:
                return found
            new = store.topic(name)  # Created since, or it raises.
            sizes = new.perm, new.read_queues, new.write_queues, 0, 0
            queues = _with_empty([], max(new.read_queues, new.write_queues))
            return TopicInfo(name, "user", *sizes, first=None, last=None, queues=queues)

    def create_topic(self, name: str, queues: int, *, create_store: bool) -> None:
        """Make a topic, and its store with `create_store`. Raises InvalidInputError if it is there.

        TOPIC_EXISTS is the code of that error.
        """
        with self._open(write=True, create=create_store) as store:
            store.create_topic(name, read_queues=queues, write_queues=queues, exist_ok=False)

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
            # The order of the log is the order in which they were stored.
            return list(deque(merge(*queues, key=attrgetter("physical_offset")), count))

    def by_key(self, topic: str, key: str, count: int) -> list[StoredMessage]:
        """Return the newest messages that have a key, the newest last."""
        with self._open() as store:
            return store.query(store.topic(topic).name, key, max_messages=count)

    def by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """Return the message with a unique id or a broker's id, or None."""
        with self._open() as store, suppress(MessageNotFoundError):
            return store.message_by_id(store.topic(topic).name, msg_id)
        return None

    def send(self, messages: Iterable[Message], *, create_topic: bool) -> Sending:
        """Append the messages one by one, each when the result of the one before is taken.

        They are durable when the generator ends. Raises TopicNotFoundError without `create_topic`.
        """
        with self._open(write=True) as store:
            try:
                for message in messages:
                    if not create_topic:
                        store.topic(message.topic)
                    yield store.append(message)
            finally:
                store.flush()

    def groups(self) -> list[str]:
        """Return the names of the consumer groups."""
        with self._open() as store:
            return list(store.groups.all())

    def lag(self, group: str = "") -> list[QueueLag]:
        """Return how far a group, or each, is in the queues of its topics.

        A group that has committed nothing has no rows. Raises GroupNotFoundError.
        """
        with self._open() as store:
            rows = _rows(store, "groups", group=group)
            return [_lag(row, store.now()) for row in rows if row["topic"] is not None]

    @contextmanager
    def _open(self, *, write: bool = False, create: bool = False) -> "Iterator[Store]":
        # Half a second of imports, which `--help` does not need.
        from pyrocket.store import Store

        with Store.open(self._directory, read_only=not write, create=create) as store:
            yield store


def _topics(store: "Store", name: str = "") -> Iterator[TopicInfo]:
    from pyrocket.metadata.topics import is_system_topic

    names = store.topics()
    for row in _rows(store, "topics", topics=[name] if name else []):
        kind = row["kind"]
        if kind == "user" and is_system_topic(row["topic"], store.broker_name, names):
            kind = "system"
        read_queues, write_queues = row["readQueues"] or 0, row["writeQueues"] or 0
        queues = [_queue(queue) for queue in row["queues"]]
        yield TopicInfo(
            name=row["topic"],
            kind=kind,
            perm=row["perm"] or 0,
            read_queues=read_queues,
            write_queues=write_queues,
            messages=row["messages"],
            bytes=row["bytes"],
            first=row["firstStoreTimestamp"],
            last=row["lastStoreTimestamp"],
            queues=_with_empty(queues, max(read_queues, write_queues)),
        )


def _with_empty(queues: Iterable[QueueInfo], count: int) -> tuple[QueueInfo, ...]:
    """Add those of the first `count` queues that have never held a message."""
    known = {queue.queue_id: queue for queue in queues}
    empty = (
        QueueInfo(queue_id, minimum=0, maximum=0, bytes=0, first=None, last=None)
        for queue_id in set(range(count)) - known.keys()
    )
    return tuple(sorted([*known.values(), *empty], key=attrgetter("queue_id")))


def _queue(row: dict[str, Any]) -> QueueInfo:
    return QueueInfo(
        queue_id=row["queueId"],
        minimum=row["minOffset"],
        maximum=row["maxOffset"],
        bytes=row["bytes"],
        first=row["firstStoreTimestamp"],
        last=row["lastStoreTimestamp"],
    )


def _lag(row: dict[str, Any], now_ms: int) -> QueueLag:
    oldest = row["nextStoreTimestamp"]
    return QueueLag(
        group=row["consumerGroup"],
        topic=row["topic"],
        queue_id=row["queueId"],
        committed=row["committedOffset"],
        minimum=row["minOffset"],
        maximum=row["maxOffset"],
        lag=row["lag"],
        bytes=row["lagBytes"],
        lost=row["lost"],
        beyond_end=row["beyondEnd"],
        behind_ms=0 if oldest is None else max(now_ms - int(oldest.timestamp() * 1000), 0),
    )


def _rows(store: "Store", view: "ViewName", **narrowed: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a view by column name."""
    from pyrocket.views.parts import VIEW_COLUMNS

    for part in store.views.plan(view, **narrowed):
        for batch in store.views.scan(part, list(VIEW_COLUMNS[view])):
            yield from batch.to_pylist()
