"""The messages of the store of a command: reads, look-ups and sends."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from pyrocket.errors import OffsetOutOfRangeError, StorePermissionError
from pyrocket.tools.session import Place, Session, messages_of, open_session
from pyrocket.values.message import Message, MessageQueue, QueueRange, SendResult, StoredMessage

if TYPE_CHECKING:
    from pyrocket.filters.message_filter import MessageFilter

_Sending = Generator[SendResult, None, None]

_NO_END = 2**63 - 1


class Messages:
    """Each method opens the store; all of them may raise PyrocketError."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def newest(
        self, topic: str, count: int, queue_id: int | None, where: "MessageFilter | None" = None
    ) -> list[StoredMessage]:
        """Return the newest messages of a topic or of one of its queues; the newest is last."""
        with open_session(self._place) as store:
            return _newest(store, store.ranges(topic, queue_id), count, where)

    def follow(
        self,
        topic: str,
        count: int,
        queue_id: int | None,
        where: "MessageFilter | None",
        wait: Callable[[], object],
    ) -> Iterator[StoredMessage]:
        """Yield the newest messages, and then each new one; call `wait` before each look."""
        with open_session(self._place) as store:
            ranges = store.ranges(topic, queue_id)
            yield from _newest(store, ranges, count, where)
            while True:
                ends = {has.queue: has.end for has in ranges}
                wait()
                ranges = store.ranges(topic, queue_id)
                new = [_starting(has, ends.get(has.queue, has.start)) for has in ranges]
                yield from sorted(store.messages(new, where), key=_log_offset)

    def oldest(
        self,
        topic: str,
        count: int,
        queue_id: int | None,
        offset: int | None,
        from_ms: int | None,
        where: "MessageFilter | None" = None,
    ) -> list[StoredMessage]:
        """Return messages of a topic from its start, from an offset of a queue, or from a time.

        Raises OffsetOutOfRangeError.
        """
        with open_session(self._place) as store:
            ranges = store.ranges(topic, queue_id)
            if offset is not None:
                ranges = [starting_at(has, offset) for has in ranges]
            elif from_ms is not None:
                starts = store.source.offsets_at({has.queue: from_ms for has in ranges})
                ranges = [replace(has, start=starts[has.queue]) for has in ranges]
            return _oldest(store, ranges, count, where)

    def unconsumed(
        self, group: str, topic: str, count: int, where: "MessageFilter | None" = None
    ) -> tuple[list[StoredMessage], dict[MessageQueue, int]]:
        """Return the next messages of a group, oldest first, and the offsets after them.

        Queues without committed offsets start at their first message. Raises GroupNotFoundError.
        """
        with open_session(self._place) as store:
            store.admin.groups.get(group)
            known = store.source.committed(group, [topic])
            ranges = [
                _starting(has, known.get(has.queue, has.start)) for has in store.ranges(topic)
            ]
            messages = _oldest(store, ranges, count, where)
        after: dict[MessageQueue, int] = {}
        if len(messages) < count:  # Messages that `where` does not select are consumed, too.
            after = {has.queue: has.end for has in ranges}
        for message in messages:
            queue = MessageQueue(topic, ranges[0].queue.broker, message.queue_id)
            after[queue] = max(message.queue_offset + 1, after.get(queue, 0))
        return messages, after

    def by_key(self, topic: str, key: str, count: int) -> list[StoredMessage]:
        """Return the newest messages with a key; the newest is last."""
        with open_session(self._place) as store:
            store.source.topic(topic)
            return _find(store, [topic], keys=[key], count=count)

    def by_keys(self, topics: Collection[str], keys: Sequence[str]) -> list[StoredMessage]:
        """Return the messages with any of these keys, in all topics that the user may read.

        topics: those that are searched if the user may not read all.
        """
        with open_session(self._place) as store:
            names = store.source.topics()
            try:
                return _find(store, [*names], keys=keys)
            except StorePermissionError:
                readable = [name for name in topics if name in names]
                return _find(store, readable, keys=keys) if readable else []

    def by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """Return the first message with a unique id or an offset message id, or None."""
        with open_session(self._place) as store:
            store.source.topic(topic)
            return next(iter(_find(store, [topic], ids=[msg_id])), None)

    def send(self, messages: Iterable[Message], *, create_topic: bool) -> _Sending:
        """Append the messages one by one, each when the next result is requested.

        The messages are durable when the generator ends. Without `create_topic`, raises
        TopicNotFoundError for a missing topic.
        """
        with open_session(self._place, write=True) as store:
            try:
                for message in messages:
                    yield store.sink.send(message, create=create_topic)
            finally:
                store.sink.flush()


def _newest(
    store: Session, ranges: Iterable[QueueRange], count: int, where: "MessageFilter | None"
) -> list[StoredMessage]:
    newest: list[StoredMessage] = []
    for has in ranges:
        size, start, last = count, has.end, list[StoredMessage]()
        while len(last) < count and start > has.start:
            start = max(has.start, has.end - size)
            last = [*store.messages([replace(has, start=start)], where)]
            size *= 4
        # Log offsets have the order in which messages were stored.
        merged = sorted([*newest, *last], key=_log_offset)
        newest = merged[max(len(merged) - count, 0) :]
    return newest


def _oldest(
    store: Session, ranges: Iterable[QueueRange], count: int, where: "MessageFilter | None"
) -> list[StoredMessage]:
    oldest: list[StoredMessage] = []
    for has in ranges:
        end = has.end if where else max(min(has.end, has.start + count), has.start)
        first = islice(store.messages([replace(has, end=end)], where), count)
        oldest = sorted([*oldest, *first], key=_log_offset)[:count]
    return oldest


def _starting(has: QueueRange, offset: int) -> QueueRange:
    """Return the part of a queue from an offset, or from the nearest one that it has."""
    return replace(has, start=min(max(offset, has.start), has.end))


def starting_at(has: QueueRange, offset: int) -> QueueRange:
    """Return the part of a queue from an offset. Raises OffsetOutOfRangeError."""
    if not has.start <= offset <= has.end:
        raise OffsetOutOfRangeError(
            f"{has.queue} begins at {has.start} and ends at {has.end}, so {offset} is invalid.",
            remedy=f"Use an offset from {has.start} to {has.end}.",
        )
    return replace(has, start=offset)


def _find(
    store: Session,
    topics: Sequence[str],
    *,
    keys: Sequence[str] = (),
    ids: Sequence[str] = (),
    count: int = _NO_END,
) -> list[StoredMessage]:
    """Return the newest `count` messages with one of the keys or ids; the newest is last."""
    from pyrocket.values.lookup import LookupRequest

    messages: list[StoredMessage] = []
    request = LookupRequest(topics=topics, keys=keys, ids=ids)
    for located in store.source.locate(request).locations:
        newest = located[slice(max(len(located) - count, 0), len(located))]
        for part in store.source.slices_at(newest):
            messages += messages_of(part)
    return sorted(messages, key=_log_offset)[-count:]


_log_offset = attrgetter("physical_offset")
