# mypy: disable-error-code="empty-body"
"""`RemoteSink`: writes to a store through its broker."""

import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from pyrocket.base.arguments import check_type, check_whole
from pyrocket.base.config import MAX_BODY_BYTES, Retention, StoreConfig
from pyrocket.engine.message_encoder import AppendRoute, MessageEncoder, UniqueIds
from pyrocket.errors import MessageError, TopicNotFoundError
from pyrocket.formats.properties import check_message_kinds
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.formats.wire_block import BLOCK_BYTES, encode_records
from pyrocket.metadata.topics import check_topic_name
from pyrocket.remote.client import Client, remote
from pyrocket.remote.source import RemoteSource
from pyrocket.services.sink.batch import SinkBatch
from pyrocket.services.sink.staging import Stager, staged_name
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import AppendResult, Message, MessageQueue, OutgoingMessage, SendResult
from pyrocket.values.sink import FAIL, ContentSum, Published, Staged
from pyrocket.wire.channel import CLIENTS
from pyrocket.wire.messages import value_of

DEFAULT_REQUEST_BYTES = 16 << 20
"""The maximum size of a request to brokers that do not report their limits."""

_MORE_BYTES = 160
"""Estimated bytes of a record in addition to the columns of its row: header, topic, UNIQ_KEY."""

_CALL_BLOCKS = 3.5
"""Maximum size of a call that stages records, in blocks. With calls of one block each, both
sides need a tenth more CPU time."""


class BrokerStaging:
    """The staging area of a broker."""

    def __init__(self, client: Client, store_id: str, routes: "_Routes", block_bytes: int) -> None:
        """`routes` are those to topics, which need not exist yet."""
        self._client, self.store_id, self._routes = client, store_id, routes
        self._block_bytes = block_bytes
        self.root = Path(client.connection.address)

    def create(self, batch: SinkBatch, partition: int, attempt: int) -> tuple[str, "Upload"]:
        """Return the name of a new staged file, and its upload."""
        name = staged_name(batch, partition, attempt)
        return name, Upload(self._client, name, self._routes.used, self._block_bytes)

    def queues_of(self, topic: str) -> int:
        """Return the number of write queues of a topic."""
        return self._routes(topic).queues

    def completed(self, name: str) -> None:
        """Do nothing: the broker records the time itself."""

    def remove(self, name: str) -> None:
        """Delete a file that will not be published."""
        unpublished = Staged(name, 0, 0, 0, 0, ContentSum(), self.store_id)
        self._client.call("Discard", staged=[unpublished])


class Upload:
    """The upload of one staged file. Some blocks are sent while the next ones are filled."""

    def __init__(
        self, client: Client, name: str, routes: Mapping[str, int], block_bytes: int
    ) -> None:
        self._client, self._name, self._routes = client, name, routes
        self._block_bytes = block_bytes
        self._thread = ThreadPoolExecutor(1, "pyrocket-upload")
        self._sent: Future[object] | None = None
        self._waiting: list[bytes] = []
        self._size = self._blocks = 0

    def add(self, batch: EncodedBatch) -> None:
        """Upload a batch. If the broker rejected an earlier block, raises the broker's error."""
        for block in blocks_of(batch, self._block_bytes):
            if self._size and self._size + len(block) > _CALL_BLOCKS * self._block_bytes:
                self._send()
            self._waiting.append(block)
            self._size += len(block)

    def _send(self) -> None:
        self._wait()
        self._sent = self._thread.submit(
            self._client.call,
            "Stage",
            name=self._name,
            number=self._blocks,
            topics=dict(self._routes),
            records=self._waiting,
        )
        self._waiting, self._size, self._blocks = [], 0, self._blocks + 1

    def _wait(self) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.result()

    def finish(self) -> tuple[int, int]:
        """Upload the last block; return the length and checksum of the broker's file."""
        self._send()
        self._wait()
        self.close()
        reply = self._client.call("FinishStaging", name=self._name, blocks=self._blocks)
        return reply.value.length, reply.value.checksum

    def close(self) -> None:
        """Stop sending."""
        self._thread.shutdown(cancel_futures=True)


def blocks_of(batch: EncodedBatch, size: int) -> Iterator[bytes]:
    """Yield the records in blocks of about `size` bytes."""
    records, first = memoryview(batch.data), 0
    while first < len(batch):
        start = int(batch.bounds[first])
        last = int(batch.bounds.searchsorted(start + size, side="right")) - 1
        last = max(last, first + 1)
        yield encode_records(records[start : int(batch.bounds[last])], batch.sizes[first:last])
        first = last


class RemoteSink:
    """Writes to a store through its broker. Must be used by one thread only."""

    def __init__(self, client: Client, config: StoreConfig | None = None) -> None:
        """Only `auto_create_topics` and `timer_max_delay_ms` of `config` are used.

        Writes create a missing topic only if the broker's `auto_create_topics` is set, too.
        """
        self.client, self._source = client, RemoteSource(client)
        self._config, self._name = config or StoreConfig(), uuid.uuid4().hex
        hello = self._source.hello
        longest = self._config.timer_max_delay_ms
        encoding = StoreConfig(
            delay_levels=hello.delay_levels,
            log_file_bytes=hello.log_file_bytes,
            timer_max_delay_ms=min(longest, hello.timer_max_delay_ms or longest),
            max_message_bytes=hello.max_message_bytes or MAX_BODY_BYTES,
        )
        # Larger batches are staged: the broker has no memory reserved for them.
        self._append_bytes = hello.max_request_bytes or DEFAULT_REQUEST_BYTES
        self._block_bytes = min(BLOCK_BYTES, self._append_bytes // 4)
        self._encoder = MessageEncoder(encoding, self._source.now_ms)
        self._ids = UniqueIds(self._source.now_ms)
        self._creates = self._config.auto_create_topics and hello.auto_create_topics
        self._known: dict[str, TopicConfig] = {}

    @property
    def store_id(self) -> str:
        """The uuid of the store."""
        return self._source.store_id

    @cached_property
    def retention(self) -> Retention | None:
        """How long messages are kept, as of the first access; None means forever."""
        return value_of(self.client.call("Retention"), Retention | None)

    @remote("Prepare")
    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic; with `create`, create a missing topic. Raises TopicNotFoundError."""

    def send(self, message: Message, create: bool = False) -> SendResult:
        """Append one message; with `create` a missing topic is created.

        Raises MessageError, TopicNotFoundError.
        """
        check_message_kinds(message)
        name = message.topic
        route = self._existing(name, create=create)
        queue = MessageQueue(name, "", self._encoder.queue_of(message, route))
        now_ms = self._source.now_ms()
        sent = OutgoingMessage(message, message.body, self._ids.one(), now_ms).as_sent()
        reply = self.client.call("SendMessages", CLIENTS, queue=queue, messages=[sent])
        (result,) = value_of(reply, list[SendResult])
        return result

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        repeat_id: str = "",
    ) -> AppendResult:
        """Append all rows, or none.

        Repeated calls with the same `repeat_id` append the rows only once. Without it the rows may
        be duplicated, with the same UNIQ_KEYs, if a reply is lost and the client repeats the call.
        """
        if batch.nbytes + batch.num_rows * _MORE_BYTES > self._append_bytes:
            repeat_id = repeat_id or uuid.uuid4().hex
        if repeat_id:
            return self._append_once(batch, topic, first_queue, f"{self._name}:{repeat_id}")
        try:
            return self._append(batch, topic, first_queue)
        except TopicNotFoundError as error:
            if error.code != "TOPIC_CHANGED":
                raise
            self._known.clear()
            return self._append(batch, topic, first_queue)

    def _append(
        self, batch: pa.RecordBatch, topic: str | None, first_queue: int | None
    ) -> AppendResult:
        columns = check_send_batch(batch, self._encoder.max_message_bytes)
        start = random.randrange(1024) if first_queue is None else first_queue
        routes = _Routes(partial(self._existing, create=self._creates))
        size = self._block_bytes
        parts = self._encoder.encode_rows(batch, columns, topic, start, routes, size)
        blocks = (block for part in parts for block in blocks_of(part, size))
        reply = self.client.call("Append", topics=routes.used, records=blocks)
        return value_of(reply, AppendResult)

    def _append_once(
        self, batch: pa.RecordBatch, topic: str | None, first_queue: int | None, identity: str
    ) -> AppendResult:
        named = SinkBatch.once(name=identity)
        with self.stage(named, partition=0, attempt=0) as stager:
            stager.append(batch, topic=topic, first_queue=first_queue)
            staged = stager.finish()
        published = self.publish(named, [staged])
        return AppendResult(staged.rows, staged.bytes, published.log_end)

    def _existing(self, name: str, *, create: bool) -> AppendRoute:
        """Return the route to a topic; with `create`, a missing topic is created."""
        return self._route(name) or _route_to(self._keep(self.prepare(name, create=create)))

    def _planned(self, name: str) -> AppendRoute:
        """Return the route to a topic; a missing topic is created only when rows are published."""
        route = self._route(name)
        if route is None and not self._creates:
            self._source.topic(name)
        return route or AppendRoute(name, self._source.hello.default_queues)

    def _route(self, name: str) -> AppendRoute | None:
        """Return the route to a topic; None if the topic does not exist."""
        check_topic_name(name)
        if name not in self._known:
            try:
                self._keep(self._source.topic(name))
            except TopicNotFoundError:
                return None
        return _route_to(self._known[name])

    def _keep(self, topic: TopicConfig) -> TopicConfig:
        self._known[topic.name] = topic
        return topic

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> Stager:
        """Return a `Stager` for the rows of one task. Use it in a `with` block."""
        check_type(SinkBatch, "Use a pyrocket.SinkBatch(identity=…).", batch=batch)
        check_whole("partition", partition)
        check_whole("attempt", attempt)
        self._known.clear()
        routes = _Routes(self._planned)
        place = BrokerStaging(self.client, self.store_id, routes, self._block_bytes)
        return Stager(place, self._encoder, batch, (partition, attempt))

    def publish(
        self,
        batch: SinkBatch,
        staged: Sequence[Staged],
        *,
        anonymous: bool = False,
        on_difference: str = FAIL,
        on_gap: str = FAIL,
    ) -> Published:
        """Publish staged rows atomically and durably; a repeated call changes nothing.

        The broker also stores the identity of an `anonymous` batch, so that the call can be
        repeated after a lost reply.
        """
        reply = self.client.call(
            "Publish",
            batch=batch,
            staged=staged,
            on_difference=on_difference,
            on_gap=on_gap,
            create=self._creates,
        )
        return value_of(reply, Published)

    def discard(self, staged: Sequence[Staged]) -> None:
        """Delete staged rows that will not be published."""
        if any(part.name for part in staged):
            self.client.call("Discard", staged=staged)

    @remote("Flush")
    def flush(self) -> None:
        """Flush everything appended before the call; with `sync`, a replica must have it, too."""

    def close(self, *, clean: bool = True) -> None:
        """Close the connection."""
        self._source.close()


class _Routes:
    """Routes rows to topics, and collects the number of write queues of each topic in use."""

    def __init__(self, route: Callable[[str], AppendRoute]) -> None:
        self._route, self.used = route, dict[str, int]()

    def __call__(self, name: str) -> AppendRoute:
        route = self._route(name)
        self.used[name] = route.queues
        return route


def _route_to(topic: TopicConfig) -> AppendRoute:
    if not topic.writable:
        raise MessageError(
            f"topic {topic.name!r} is not writable.",
            remedy="Add the write permission to the topic at the broker.",
            code="TOPIC_NOT_WRITABLE",
        )
    return AppendRoute(topic.name, topic.write_queues)
