"""`StoreSink`: the writing side of the store of one broker."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property

from pyrocket.broker.append_queue import CONFIRMED, AppendQueue, Confirm
from pyrocket.engine.received_records import ReceivedRecords, RecordCheck
from pyrocket.errors import SinkError
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.services.sink.batch import SinkBatch
from pyrocket.services.sink.staging import check_staged_name
from pyrocket.store import Store, sender_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import AppendResult, Message, SendResult
from pyrocket.values.sink import Published, Staged


class StoreSink:
    """Writes to an open store for clients. Safe to share between threads."""

    def __init__(self, store: Store, confirm: Confirm = lambda: CONFIRMED) -> None:
        self._confirm, self.flush = confirm, store.flush
        self._store, self._records = store, RecordCheck(store.config, store.now)

    @cached_property
    def appends(self) -> AppendQueue:
        """The queue for appends of all clients; its thread starts on first use."""
        append = sender_of(self._store).append_received
        gathers = self._store.config.flush == "sync"
        return AppendQueue(append, confirm=self._confirm, gathers=gathers)

    def send(self, message: Message, create: bool = False) -> SendResult:
        """Append one message; `create` a missing topic. Raises MessageError, TopicNotFoundError."""
        self.prepare(message.topic, create)
        return self._store.append(message)

    def prepare(self, topic: str, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic; with `create`, create a missing topic. Raises TopicNotFoundError."""
        topics = self._store.topics
        if not create or topic in topics.all():
            return topics.get(topic)
        count = queues or self._store.config.default_queues
        return topics.create(topic, read_queues=count, write_queues=count)

    def check(self, topics: Mapping[str, int], block: bytes) -> EncodedBatch:
        """Return the records of a block, which all have the same topic, for `append` or `stage`.

        `topics` maps each topic to the number of write queues that the client assumed. Raises
        MessageError, TopicNameError.
        """
        return self._records.check(topics, block)

    def append(self, records: ReceivedRecords) -> "Future[AppendResult]":
        """Append all or none. Raises TopicNotFoundError (TOPIC_CHANGED), BrokerBusyError."""
        if not records.batches:
            nothing: Future[AppendResult] = Future()
            nothing.set_result(AppendResult(0, 0, self._store.position().published))
            return nothing
        return self.appends.put(records)

    def stage(self, name: str, number: int, records: ReceivedRecords) -> None:
        """Write checked records as block `number` of a staged file; the client names the file.

        A repeated call changes nothing. Raises SinkError (UPLOAD_LOST), StoreUnavailableError
        (STAGING_FULL).
        """
        self._store.sink.uploads.add(name, number, records.batches)

    def finish_staging(self, name: str, blocks: int) -> tuple[int, int]:
        """Complete a staged file; return its length and checksum. A repeat changes nothing."""
        return self._store.sink.uploads.finish(name, blocks)

    def publish(
        self,
        batch: SinkBatch,
        staged: Sequence[Staged],
        on_difference: str,
        on_gap: str,
        create: bool,
    ) -> Published:
        """Publish staged rows atomically and durably; a repeated call changes nothing.

        With `create`, missing topics are created. Raises the errors of `Sink.publish`.
        """
        _check_names(staged)
        for part in staged:
            if part.name:
                _check_folder(batch, part)
        create = create and self._store.config.auto_create_topics
        how = {"on_difference": on_difference, "on_gap": on_gap}
        return self._store.sink.publish(batch, staged, **how, create_topics=create, uploaded=True)

    def discard(self, staged: Sequence[Staged]) -> None:
        _check_names(staged)
        self._store.sink.discard(staged)

    def close(self) -> None:
        """Append the pending records."""
        if "appends" in vars(self):
            self.appends.close()


def _check_folder(batch: SinkBatch, staged: Staged) -> None:
    """Reject files that another query staged: publishing deletes earlier files of that query."""
    if staged.name.partition("/")[0] != batch.key:
        raise SinkError(
            f"{staged.name!r} was staged for another query.",
            remedy="Stage and publish with the same SinkBatch.",
            code="STAGED_BROKEN",
        )


def _check_names(staged: Sequence[Staged]) -> None:
    for part in staged:
        if part.name:
            check_staged_name(part.name)
