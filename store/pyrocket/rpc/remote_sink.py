"""`RemoteSink`: writes to a store through its broker."""

import random

import pyarrow as pa

from pyrocket.config import StoreConfig
from pyrocket.engine.message_encoder import MessageEncoder, TopicRoute
from pyrocket.errors import MessageError, TopicNotFoundError
from pyrocket.formats.send_columns import check_send_batch
from pyrocket.message import AppendResult, SendStatus
from pyrocket.metadata.topics import TopicConfig, check_topic_name
from pyrocket.rpc.client import Client
from pyrocket.rpc.messages import values_of
from pyrocket.rpc.remote_source import RemoteSource


class RemoteSink:
    """Writes to a store through its broker. Belongs to one thread."""

    def __init__(self, client: Client, config: StoreConfig | None = None) -> None:
        """Of `config` count `auto_create_topics` and `timer_max_delay_ms`."""
        self._client, self._source = client, RemoteSource(client)
        self._config = config or StoreConfig()
        self._routes: dict[str, int] = {}
        hello = self._source.hello
        encoding = StoreConfig(
            delay_levels=hello.delay_levels,
            log_file_bytes=hello.log_file_bytes,
            timer_max_delay_ms=self._config.timer_max_delay_ms,
        )
        self._encoder = MessageEncoder(encoding, self._source.now_ms)

    @property
    def store_id(self) -> str:
        """The uuid of the store."""
        return self._source.store_id

    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic, created if it is missing and `create`. Raises TopicNotFoundError."""
        reply = self._client.call("Prepare", topic=topic, create=create, queues=queues)
        return values_of(reply, {"value": TopicConfig})["value"]

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        repeat_id: str = "",
    ) -> AppendResult:
        """Append all rows, or none."""
        try:
            return self._append(batch, topic, first_queue)
        except TopicNotFoundError as error:
            if error.code != "TOPIC_CHANGED":
                raise
            self._routes.clear()
            return self._append(batch, topic, first_queue)

    def _append(
        self, batch: pa.RecordBatch, topic: str | None, first_queue: int | None
    ) -> AppendResult:
        columns = check_send_batch(batch)
        start = random.randrange(1024) if first_queue is None else first_queue
        used: dict[str, int] = {}

        def route(name: str) -> TopicRoute:
            used[name] = self._write_queues(name)
            return TopicRoute(name, used[name])

        encoded = self._encoder.encode_rows(batch, columns, topic, start, route)
        reply = self._client.call(
            "Append", topics=used, runs=[one.data.to_pybytes() for one in encoded]
        )
        return AppendResult(reply.rows, reply.bytes, reply.log_end, SendStatus(reply.status))

    def _write_queues(self, name: str) -> int:
        check_topic_name(name)
        if name not in self._routes:
            topic = self.prepare(name, create=self._config.auto_create_topics)
            if not topic.writable:
                raise MessageError(f"topic {name!r} is not writable.", code="TOPIC_NOT_WRITABLE")
            self._routes[name] = topic.write_queues
        return self._routes[name]

    def flush(self) -> None:
        """Return when everything appended before is durable."""
        self._client.call("Flush")

    def close(self, *, clean: bool = True) -> None:
        """Close the connection."""
        self._source.close()
