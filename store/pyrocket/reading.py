"""The reading half of a store, as users see it: positions, offsets, messages, look-ups."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyrocket.lookup import Lookup
from pyrocket.message import Position, QueueOffsets, StoredMessage
from pyrocket.reader import Reader
from pyrocket.services.topics import TopicConfig


class Reading:
    """What every open store can do, read-only or not. Never locks, never writes."""

    def __init__(self, reader: Reader, lookup: Lookup) -> None:
        self._reader, self._lookup = reader, lookup
        self._topics = reader.topics

    def topics(self) -> dict[str, TopicConfig]:
        """Return every topic by name."""
        return dict(self._topics.all())

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError naming the nearest."""
        return self._topics.get(name)

    def position(self) -> Position:
        """Return one cheap look at the store: equal positions mean that nothing changed."""
        return self._reader.position()

    def offsets(self, topic: str) -> dict[int, QueueOffsets]:
        """Return the readable range of each read queue of a topic."""
        return self._reader.offsets(self.topic(topic))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset that is still there."""
        return self._reader.queue_offsets(self.topic(topic), queue_id).minimum

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last offset."""
        return self._reader.queue_offsets(self.topic(topic), queue_id).maximum

    def read(
        self, topic: str, queue_id: int, offset: int, max_messages: int = 32
    ) -> list[StoredMessage]:
        """Return up to `max_messages` from `offset` on; none at the queue's end.

        Raises OffsetOutOfRangeError below the minimum or beyond the maximum.
        """
        return self._reader.read(self.topic(topic), queue_id, offset, max_messages)

    def scan(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        columns: Sequence[str] = ("queueOffset", "body"),
        *,
        verify_crc: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield exactly the messages [start, end) in batches of a few MiB.

        Columns: `pyrocket.SCAN_COLUMNS`; only those asked for are built. Raises
        OffsetOutOfRangeError, StoreDamagedError, and SchemaError for a `bodyText` that is not
        UTF-8.
        """
        known = self.topic(topic)
        return self._reader.scan(known, queue_id, start, end, columns, verify_crc=verify_crc)

    def estimate_bytes(self, topic: str, queue_id: int, start: int, end: int) -> int:
        """Return about how many log bytes the messages [start, end) take; reads three entries."""
        return self._reader.estimate_bytes(topic, queue_id, start, end)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first offset stored at or after the time; the maximum if there is none."""
        return self._reader.offset_by_time(self.topic(topic), queue_id, timestamp_ms)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        max_messages: int = 64,
    ) -> list[StoredMessage]:
        """Return the newest messages with this key or unique id stored in the time, oldest first.

        Messages of deleted topics, and of RocketMQ's own, are found as long as the log has them.
        """
        return self._lookup.query(topic, key, begin_ms, end_ms, max_messages)

    def message_by_offset_id(self, offset_msg_id: str) -> StoredMessage:
        """Return the message with the broker's id. Raises MessageIdError, MessageNotFoundError."""
        return self._lookup.by_offset_id(offset_msg_id)

    def message_by_id(self, topic: str, msg_id: str) -> StoredMessage:
        """Return the topic's message with this unique or offset id, or MessageNotFoundError."""
        return self._lookup.by_id(topic, msg_id)
