"""Sending: find the topic, encode, take a turn, append, and make it durable if that is asked."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.errors import (
    MessageError,
    StoreLockedError,
    TopicNameError,
    TopicNotFoundError,
)
from pyrocket.formats.message_id import offset_message_id
from pyrocket.formats.record import STORE_HOST
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.message import AppendResult, Message, SendResult, SendStatus
from pyrocket.outgoing import Outgoing, Route, name_row
from pyrocket.services.topics import TopicConfig, Topics, check_topic_name
from pyrocket.write_queue import WriteQueue
from pyrocket.writer import Writer


class Sender:
    """Sends into one store; safe to share between threads."""

    def __init__(self, topics: Topics, config: StoreConfig, clock: Clock) -> None:
        self._topics, self._config = topics, config
        self._outgoing = Outgoing(clock)
        self._queue = WriteQueue(self._check_topics)

    def append(self, writer: Writer, message: Message) -> SendResult:
        """Append one message."""
        topic = self._writable_topic(writer, message.topic)
        encoded, unique_id = self._outgoing.encode_message(
            message, Route(topic.name, topic.write_queues)
        )
        (appended,) = self._queue.append(writer, [encoded])
        status = self._flush(writer)
        physical_offset = int(appended.physical_offsets[0])
        return SendResult(
            topic=topic.name,
            queue_id=int(encoded.queue_ids[0]),
            queue_offset=int(appended.queue_offsets[0]),
            physical_offset=physical_offset,
            msg_id=unique_id,
            offset_msg_id=offset_message_id(*STORE_HOST, physical_offset),
            status=status,
        )

    def append_batch(
        self,
        writer: Writer,
        batch: pa.RecordBatch,
        topic: str | None,
        first_queue: int | None,
        *,
        whole: bool = False,
    ) -> AppendResult:
        """Append all rows or none; with `whole` durably, and in the face of a loss of power."""
        columns = check_send_batch(batch)
        if not len(columns):
            return AppendResult(0, 0, writer.log_end)
        start = random.randrange(1024) if first_queue is None else first_queue
        encoded: list[EncodedBatch] = []
        for name, rows in _by_topic(batch, topic):
            config = self._writable_topic(writer, name)
            part = columns if rows is None else columns.take(rows)
            route_to = Route(config.name, config.write_queues)
            try:
                encoded += self._outgoing.encode_columns(part, route_to, start)
            except MessageError as error:
                raise name_row(error, rows) from None
        self._queue.append(writer, encoded, whole=whole)
        size = sum(one.data.size for one in encoded)
        return AppendResult(len(columns), size, writer.log_end, self._flush(writer))

    def _check_topics(self, batches: Sequence[EncodedBatch]) -> None:
        known = self._topics.all()
        for one in batches:
            _check_still_there(known.get(one.topic), one)

    def _flush(self, writer: Writer) -> SendStatus:
        """Do what the configuration says about what has just been appended."""
        if self._config.flush == "async":
            writer.flush_soon()
        if self._config.flush != "sync":
            return SendStatus.SEND_OK
        try:
            writer.flush(self._config.flush_timeout_ms)
        except StoreLockedError as error:
            if error.code != SendStatus.FLUSH_DISK_TIMEOUT.value:
                raise
            return SendStatus.FLUSH_DISK_TIMEOUT
        return SendStatus.SEND_OK

    def _writable_topic(self, writer: Writer, name: str) -> TopicConfig:
        check_topic_name(name)
        topic = self._topics.all().get(name)
        if topic is None:
            topic = self._create(writer, name)
        if not topic.writable:
            raise MessageError(f"topic {name!r} may not be written.", code="TOPIC_NOT_WRITABLE")
        return topic

    def _create(self, writer: Writer, name: str) -> TopicConfig:
        if not self._config.auto_create_topics:
            return self._topics.get(name)
        queues = self._config.default_queues
        with writer.section():
            known = self._topics.all().get(name)
            if known is not None:
                return known
            topic = self._topics.put(TopicConfig(name, queues, queues))
            writer.structure_changed()
            return topic


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> list[tuple[str, pa.Array | None]]:
    """Return each topic and the rows that go there; None means all rows."""
    if topic is not None:
        return [(topic, None)]
    if "topic" not in batch.schema.names:
        raise TopicNotFoundError(
            "no topic is named.",
            remedy="Name one for the batch, or give it a `topic` column.",
            code="TOPIC_MISSING",
        )
    column = batch.column("topic")
    missing = pc.index(column.is_null(), True).as_py()
    if missing >= 0:
        raise MessageError(f"row {missing} has a null topic.", code="TOPIC_MISSING")
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for code, name in enumerate(names):
        _check_name_of_row(name, encoded.indices, code)
    if len(names) == 1:
        return [(names[0], None)]
    return [
        (name, pc.indices_nonzero(pc.equal(encoded.indices, code)))
        for code, name in enumerate(names)
    ]


def _check_name_of_row(name: str, codes: pa.Int32Array, code: int) -> None:
    """Raise TopicNameError naming the first row with an illegal topic."""
    try:
        check_topic_name(name)
    except TopicNameError as error:
        row = pc.index(codes, code).as_py()
        raise TopicNameError(f"row {row}: {error.message}", remedy=error.remedy) from None


def _check_still_there(topic: TopicConfig | None, encoded: EncodedBatch) -> None:
    """Refuse messages whose topic was deleted or shrunk while they were being encoded."""
    if topic is None or int(encoded.queue_ids.max()) >= topic.write_queues:
        raise TopicNotFoundError(
            f"topic {encoded.topic!r} was deleted or lost queues during the append.",
            remedy="Send again.",
            code="TOPIC_CHANGED",
        )
