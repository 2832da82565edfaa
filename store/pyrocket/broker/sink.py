"""The writing side of a store as one broker."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from pyrocket.broker.append_queue import AppendQueue
from pyrocket.message import AppendResult
from pyrocket.metadata.topics import TopicConfig
from pyrocket.store import Store


class StoreSink:
    """What clients write to an open store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._appends = AppendQueue(store.sink.intake.append)

    def prepare(self, topic: str, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic, created if it is missing and `create`. Raises TopicNotFoundError."""
        topics = self._store.topics
        if not create or topic in topics.all():
            return topics.get(topic)
        count = queues or self._store.config.default_queues
        return topics.create(topic, read_queues=count, write_queues=count)

    def append(self, topics: Mapping[str, int], runs: Sequence[bytes]) -> "Future[AppendResult]":
        """Append runs of records, each of one topic: all of them, or none.

        `topics` has the topics that they were sent to, with the write queues that the client knows.
        Raises MessageError, TopicNotFoundError (TOPIC_CHANGED), BrokerBusyError.
        """
        if not runs:
            nothing: Future[AppendResult] = Future()
            nothing.set_result(AppendResult(0, 0, self._store.position().published))
            return nothing
        return self._appends.put(self._store.sink.intake.check(topics, runs))

    def flush(self) -> None:
        """Return when everything appended before is durable."""
        self._store.flush()

    def close(self) -> None:
        """Append what waits."""
        self._appends.close()
