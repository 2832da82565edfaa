"""Sends messages: resolves the topic, encodes, appends, and flushes if configured.

Group append: the first of several concurrent threads appends for all in one exclusive section.

Threads share one acquisition of the write lock, one update of the shared state and, later, one
fsync, as in LevelDB's writer queue. An invalid append fails alone; a failed write fails all appends
of the group.
"""

import copy
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pyrocket.base.arguments import check_whole
from pyrocket.disk.os_errors import translating_methods
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.engine.engine import Engine
from pyrocket.engine.message_encoder import AppendRoute
from pyrocket.engine.received_records import ReceivedRecords, StoredRecords
from pyrocket.engine.writer import Writer
from pyrocket.errors import (
    MessageError,
    StoreLockedError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.formats.properties import check_message_kinds
from pyrocket.formats.record import STORE_HOST
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.formats.system_topics import POP_TOPIC
from pyrocket.log.commit_log import Placed
from pyrocket.metadata.topics import check_topic_name, lacking_topics
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import AppendResult, Message, SendResult, SendStatus

_MAX_BYTES = 4 * 1024 * 1024
"""Maximum size of the appends of a group after the first one, which may have any size."""

CheckBatches = Callable[[Sequence[EncodedBatch]], None]
"""Raises an error if batches must not be appended; called with the write lock."""


@dataclass
class _Entry:
    """The append of one thread, and its result."""

    batches: Sequence[EncodedBatch]
    whole: bool
    appended: list[Placed] = field(default_factory=list)
    error: Exception | None = None
    done: bool = False

    @property
    def size(self) -> int:
        return sum(batch.data.size for batch in self.batches)


class GroupAppend:
    """The appends of one open store, in the order in which they were requested."""

    def __init__(self, check: CheckBatches) -> None:
        self._check = check
        self._waiting: deque[_Entry] = deque()
        self._leading = threading.Lock()

    def append(
        self, writer: Writer, batches: Sequence[EncodedBatch], *, whole: bool = False
    ) -> list[Placed]:
        """Append all batches or none; with `whole`, this also holds after a power loss."""
        entry = _Entry(batches, whole)
        self._waiting.append(entry)
        with self._leading:
            while not entry.done:
                self._serve(writer, self._next_group())
        if entry.error is not None:
            raise entry.error
        return entry.appended

    def append_all(
        self, writer: Writer, requests: Sequence[Sequence[EncodedBatch]]
    ) -> list[list[Placed] | Exception]:
        """Append requests of several clients as one group; return the result or error of each."""
        group = [_Entry(batches, whole=False) for batches in requests]
        with self._leading:
            self._serve(writer, group)
        return [entry.appended if entry.error is None else entry.error for entry in group]

    def _next_group(self) -> list[_Entry]:
        group, size = [self._waiting.popleft()], 0
        while self._waiting and size + self._waiting[0].size <= _MAX_BYTES:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    def _serve(self, writer: Writer, group: list[_Entry]) -> None:
        try:
            with writer.exclusive():
                for entry in group:
                    self._refuse_if_illegal(writer, entry)
                _refuse_if_full(writer, [entry for entry in group if not entry.done])
                self._append(writer, [entry for entry in group if not entry.done])
        except Exception as error:
            _fail(group, error)
        except BaseException:
            # Only this thread is interrupted; the others get an error.
            _fail(group, _interrupted())
            raise

    def _refuse_if_illegal(self, writer: Writer, entry: _Entry) -> None:
        try:
            writer.check_fits(entry.batches)
            self._check(entry.batches)
        except Exception as error:
            entry.error, entry.done = error, True

    def _append(self, writer: Writer, legal: list[_Entry]) -> None:
        if not legal:
            return
        batches = [batch for entry in legal for batch in entry.batches]
        whole = any(entry.whole for entry in legal)
        appended = iter(writer.append(batches, whole=whole, make_room=False))
        for entry in legal:
            entry.appended = [next(appended) for _ in entry.batches]
            entry.done = True


def _refuse_if_full(writer: Writer, legal: list[_Entry]) -> None:
    """Refuse messages if the disk is full, but not the acks of consumer groups."""
    messages = [part for part in legal if any(batch.topic != POP_TOPIC for batch in part.batches)]
    try:
        if messages:
            writer.cleaner.make_room(sum(entry.size for entry in messages))
    except StoreUnavailableError as error:
        _fail(messages, error)


def _fail(group: list[_Entry], error: Exception) -> None:
    for entry in group:
        if not entry.done:
            entry.error, entry.done = copy.copy(error), True


def _interrupted() -> StoreUnavailableError:
    return StoreUnavailableError(
        "a thread of this process was interrupted while it appended for several threads; it is"
        " not known whether this message is stored.",
        remedy="Check the end of its queue, or send it again and expect a duplicate.",
        code="APPEND_INTERRUPTED",
    )


@translating_methods
class Sender:
    """Sends into one store; safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._topics, self._config = engine, engine.topics, engine.config
        self.outgoing = engine.encoder
        self._queue = GroupAppend(self._check_topics)

    def append(self, message: Message) -> SendResult:
        writer = self._engine.writer
        if not isinstance(message, Message):
            check_message_kinds(message)
        route_to = self.route(message.topic)
        encoded = self.outgoing.encode_message(message, route_to)
        self._create_system_topics(writer, [encoded.record])
        (appended,) = self._queue.append(writer, [encoded.record])
        status = self.flush(writer)
        physical_offset = int(appended.physical_offsets[0])
        return SendResult(
            topic=route_to.topic,
            queue_id=encoded.queue_id,
            queue_offset=int(appended.queue_offsets[0]),
            physical_offset=physical_offset,
            msg_id=encoded.unique_id,
            offset_msg_id=offset_message_id(*STORE_HOST, physical_offset),
            status=status,
        )

    def append_batch(
        self,
        batch: pa.RecordBatch,
        topic: str | None,
        first_queue: int | None,
        *,
        whole: bool = False,
    ) -> AppendResult:
        """Append all rows or none; with `whole`, this also holds after a power loss."""
        writer = self._engine.writer
        columns = check_send_batch(batch, self.outgoing.max_message_bytes)
        if first_queue is not None:
            check_whole("first_queue", first_queue)
        if not len(columns):
            return AppendResult(0, 0, writer.page[PUBLISHED])
        start = random.randrange(1024) if first_queue is None else first_queue
        encoded = [*self.outgoing.encode_rows(batch, columns, topic, start, self.route)]
        self._create_system_topics(writer, encoded)
        appended = self._queue.append(writer, encoded, whole=whole)
        size = sum(int(append.batch.sizes.sum()) for append in appended)
        return AppendResult(len(columns), size, writer.page[PUBLISHED], self.flush(writer))

    def append_received(
        self, requests: Sequence[ReceivedRecords]
    ) -> list[StoredRecords | Exception]:
        """Append all requests in one exclusive section, and flush once for all of them.

        Each request is appended completely or not at all. Returns the result or error of each.
        """
        writer = self._engine.writer
        errors = [self._change_of(request.routes) for request in requests]
        legal = [own.batches for own, error in zip(requests, errors, strict=True) if error is None]
        self._create_system_topics(writer, [batch for batches in legal for batch in batches])
        appended = iter(self._queue.append_all(writer, legal))
        status = self.flush(writer)
        return [
            _result_of(next(appended), writer.page[PUBLISHED], status) if error is None else error
            for error in errors
        ]

    def _change_of(self, routes: Mapping[str, int]) -> Exception | None:
        """Return an error if a topic no longer has the queues of its route, else None."""
        known = self._engine.known_topics()
        for name, queues in routes.items():
            topic = known.get(name)
            if topic is None or topic.write_queues < queues or not topic.writable:
                return _changed(name)
        return None

    def _check_topics(self, batches: Sequence[EncodedBatch]) -> None:
        """Raise TopicNotFoundError if a topic was deleted, or lost queues, after the encoding."""
        known = self._engine.known_topics()
        for batch in batches:
            topic = known.get(batch.topic)
            if topic is None or int(batch.queue_ids.max()) >= topic.write_queues:
                raise _changed(batch.topic)

    def _create_system_topics(self, writer: Writer, batches: Sequence[EncodedBatch]) -> None:
        """Create the missing system topics for the delayed messages of the batches."""
        queues = self.outgoing.delays.rooms({batch.topic for batch in batches})
        if queues and lacking_topics(queues, self._engine.known_topics()):
            with writer.exclusive():
                self._engine.ensure_topics(queues)

    def flush(self, writer: Writer) -> SendStatus:
        """Flush, or request a flush, as configured after an append; return the send status."""
        try:
            writer.flush_as_configured()
        except StoreLockedError as error:
            if error.code != SendStatus.FLUSH_DISK_TIMEOUT.value:
                raise
            return SendStatus.FLUSH_DISK_TIMEOUT
        return SendStatus.SEND_OK

    def route(self, name: str) -> AppendRoute:
        """Return the route for a topic; a missing topic is created if the store is configured so.

        Raises TopicNameError, TopicNotFoundError, MessageError (TOPIC_NOT_WRITABLE).
        """
        writer = self._engine.writer
        check_topic_name(name)
        topic = self._engine.known_topics().get(name) or self._create(writer, name)
        if not topic.writable:
            raise MessageError(
                f"topic {name!r} is not writable.",
                remedy="To make it writable, use `store.topics.update(name, perm=6)`.",
                code="TOPIC_NOT_WRITABLE",
            )
        return AppendRoute(topic.name, topic.write_queues)

    def _create(self, writer: Writer, name: str) -> TopicConfig:
        if not self._config.auto_create_topics:
            return self._topics.get(name)
        queues = self._config.default_queues
        with writer.exclusive():
            return self._engine.create_topics([TopicConfig(name, queues, queues)])[0]


def _changed(topic: str) -> TopicNotFoundError:
    return TopicNotFoundError(
        f"topic {topic!r} was deleted or lost queues during the append.",
        remedy="Send again.",
        code="TOPIC_CHANGED",
    )


def _result_of(
    appended: Sequence[Placed] | Exception, log_end: int, status: SendStatus
) -> StoredRecords | Exception:
    if isinstance(appended, Exception):
        return appended
    rows = sum(len(append.batch) for append in appended)
    size = sum(int(append.batch.sizes.sum()) for append in appended)
    return StoredRecords(rows, size, log_end, status, appended)
