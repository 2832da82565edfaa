"""The reading half of a store, as users see it: positions, offsets, messages, look-ups."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from pyrocket.arguments import (
    check_numbers,
    check_place,
    check_text,
    check_type,
)
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_methods
from pyrocket.engine.engine import lazy_property
from pyrocket.engine.group_admin import Groups
from pyrocket.engine.key_lookup import KeyLookup, LookupRequest, LookupResult
from pyrocket.engine.reader import Reader
from pyrocket.errors import InvalidInputError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice, decode_slices
from pyrocket.index.queues.message_locations import MessageLocations, slices_at
from pyrocket.index.queues.scan_many import slice_of_runs
from pyrocket.message import ByteSpan, LogMark, Position, QueueOffsets, StoredMessage
from pyrocket.metadata.topics import TopicConfig
from pyrocket.views.pending import PendingKind, PendingMessages, PendingRange

_PULL_MESSAGES, _PULL_BYTES = 1024, 4 << 20
"""The most that an iteration over messages has in memory at a time, except one larger message."""


@translating_methods
class Reading:
    """What every open store can do, read-only or not. Never locks, never writes."""

    _layout: Layout
    _pending: PendingMessages
    groups: Groups

    def __init__(self, reader: Reader) -> None:
        self._reader, self._topics = reader, reader.topics

    @lazy_property
    def _lookup(self) -> KeyLookup:
        return KeyLookup(self._layout, self._reader)

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name, as they are now; the mapping cannot be changed."""
        return MappingProxyType(self._topics.all())

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError naming the nearest."""
        return self._topics.get(name)

    def position(self) -> Position:
        """Return one cheap look at the store: equal positions mean that nothing changed."""
        return self._reader.position()

    def offsets(self, topic: str) -> dict[int, QueueOffsets]:
        """Return the readable range of each read queue of a topic."""
        return self._reader.offsets(self.topic(topic))

    def lost_queues(self, topic: str) -> dict[int, QueueOffsets]:
        """Return the ranges of queues that still hold messages, but are no read queues any more."""
        kept = self.topic(topic).read_queues
        lost = [queue_id for queue_id in self._reader.queues_of(topic) if queue_id >= kept]
        ranges = {queue_id: self.queue_range(topic, queue_id) for queue_id in lost}
        return {queue_id: has for queue_id, has in ranges.items() if has.minimum < has.maximum}

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset that is still there."""
        check_numbers(queue_id=queue_id)
        return self._reader.queue_offsets(self.topic(topic), queue_id).minimum

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last offset."""
        check_numbers(queue_id=queue_id)
        return self._reader.queue_offsets(self.topic(topic), queue_id).maximum

    def queue_range(self, topic: str, queue_id: int) -> QueueOffsets:
        """Return the range of any queue, also one that its topic, or the store, has lost.

        What such a queue still has can be scanned; of one that is gone it is where it ended, twice,
        and 0 where nobody knows.
        """
        check_place(topic, queue_id)
        return self._reader.system_offsets(topic, queue_id)

    def read(
        self, topic: str, queue_id: int, offset: int, max_messages: int = 32
    ) -> list[StoredMessage]:
        """Return up to `max_messages` from `offset` on; none at the queue's end.

        This is one pull; `messages` reads all there is. Raises OffsetOutOfRangeError below the
        minimum or beyond the maximum.
        """
        check_numbers(queue_id=queue_id, offset=offset, max_messages=max_messages)
        return self._reader.read(self.topic(topic), queue_id, offset, max_messages)

    def messages(
        self,
        topic: str,
        queue_id: int | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> Iterator[StoredMessage]:
        """Iterate over all messages of a topic, queue by queue, or over [start, end) of one queue.

            for message in store.messages("orders"):
                print(message.queue_id, message.queue_offset, message.body)

        The end is fixed by the call: messages appended later are not among them. Without `start`
        and `end` the range is all that the queue has. A few MiB are in memory at a time. Raises
        TopicNotFoundError, QueueNotFoundError, OffsetOutOfRangeError, also in the middle where
        messages are deleted before they are read.
        """
        if queue_id is None:
            if start is not None or end is not None:
                raise InvalidInputError(
                    f"start is {start} and end is {end}, but no queue is named.",
                    remedy="Offsets count in one queue: give its queue_id, too.",
                    code="QUEUE_MISSING",
                )
            ranges = self.offsets(topic)
        else:
            ranges = {queue_id: self._range(topic, queue_id, start, end)}
        return self._messages(self.topic(topic), ranges)

    def _range(self, topic: str, queue_id: int, start: int | None, end: int | None) -> QueueOffsets:
        check_numbers(queue_id=queue_id)
        known = self.queue_range(topic, queue_id)
        first = known.minimum if start is None else start
        last = known.maximum if end is None else end
        check_numbers(start=first, end=last)
        self._reader.check_range(self.topic(topic), queue_id, first, last)
        return QueueOffsets(first, last)

    def _messages(
        self, topic: TopicConfig, ranges: Mapping[int, QueueOffsets]
    ) -> Iterator[StoredMessage]:
        for queue_id, has in ranges.items():
            offset = has.minimum
            while offset < has.maximum:
                last = min(has.maximum, offset + _PULL_MESSAGES)
                cuts = self._reader.cut_by_bytes(topic.name, queue_id, offset, last, [_PULL_BYTES])
                # A message larger than that is read alone.
                count = max(cuts[0][0] - offset, 1)
                yield from self._reader.read(topic, queue_id, offset, count)
                offset += count

    def scan(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        columns: Sequence[str] = ("queueOffset", "body"),
        *,
        verify_crc: bool = False,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield exactly the messages [start, end) in batches of a few MiB, those `where` wants.

        Columns: `pyrocket.SCAN_COLUMNS`; only those asked for are built. A `tally` counts what was
        looked at. Raises OffsetOutOfRangeError, StoreDamagedError, and SchemaError for a `bodyText`
        that is not UTF-8.
        """
        slices = self.slices(topic, queue_id, start, end, where=where, tally=tally)
        join = where is not None and not where.wants_all
        return decode_slices(slices, columns, verify_crc=verify_crc, join=join)

    def slices(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield exactly the messages [start, end) that `where` wants as raw records.

        A slice has a few MiB and is valid until the next one is taken; `decode_slices` makes
        columns of them. Raises what `scan` does.
        """
        known = self.topic(topic)
        check_numbers(queue_id=queue_id, start=start, end=end)
        return self._reader.slices(known, queue_id, start, end, where=where, tally=tally)

    def slice_of_ranges(
        self,
        topic: str,
        ranges: Sequence[tuple[int, int, int]],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return the messages of a few small ranges (queue, start, end) as one slice.

        Costs about as much as one of them. None where they have more than a few MiB, or where one
        cannot be read; read each range alone then.
        """
        runs = self._reader.runs(self.topic(topic).name, ranges)
        if not runs:
            return None
        broker = self._reader.identity.config.broker_name
        where, tally = where or MessageFilter(), tally or ScanTally()
        return slice_of_runs(self._reader.log, runs, broker, where, tally)

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield exactly the messages at the locations as raw records; otherwise as `slices`."""
        check_type(MessageLocations, "Use what `Store.locate` returned.", locations=locations)
        broker = self._reader.identity.config.broker_name
        where, tally = where or MessageFilter(), tally or ScanTally()
        return slices_at(self._reader.log, locations, broker, where, tally)

    def estimate_bytes(self, topic: str, queue_id: int, start: int, end: int) -> int:
        """Return about how many log bytes the messages [start, end) take; reads three entries."""
        return self.log_span(topic, queue_id, start, end).bytes

    def log_span(self, topic: str, queue_id: int, start: int, end: int) -> ByteSpan:
        """Return where in the log [start, end) lies, and what `estimate_bytes` does.

        The count is exact up to 256 messages. Zeros where none of them is there.
        """
        return self._reader.log_span(topic, queue_id, start, end)

    def cut_by_bytes(
        self, topic: str, queue_id: int, start: int, end: int, marks: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return for each mark, ascending, the offset up to which messages have no more bytes.

        That is the last one in [start, end], counted from `start`, and how many bytes they have.
        Reads 20 bytes a message, up to the last mark.
        """
        return self._reader.cut_by_bytes(topic, queue_id, start, end, marks)

    def now(self) -> int:
        """Return the store's time in epoch milliseconds: the wall clock's, or a test's."""
        return self._reader.clock()

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first offset stored at or after the time; the maximum if there is none.

        The queue may be one that the topic has lost, as long as it holds messages.
        """
        check_numbers(queue_id=queue_id, timestamp_ms=timestamp_ms)
        return self._reader.offset_by_time(self.topic(topic), queue_id, timestamp_ms)

    def mark(self, offsets: Mapping[str, Mapping[int, int]]) -> LogMark | None:
        """Return the mark of the newest message before {topic: {queue id: next offset}}.

        A caller that keeps offsets of this store keeps the mark, too, and asks `holds` before
        using them: a store that was restored from an older copy is noticed that way. Reads 20 bytes
        a queue. None if none of these messages is there any more.
        """
        return self._reader.mark(offsets)

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log has the marked message where it was, and so all before it.

        Reads 88 bytes. None where it was cleaned away, and nothing can be said.
        """
        return self._reader.holds(mark)

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
        check_text(topic=topic, key=key)
        check_numbers(begin_ms=begin_ms, end_ms=end_ms, max_messages=max_messages)
        return self._lookup.query(topic, key, begin_ms, end_ms, max_messages)

    def locate(self, wanted: LookupRequest) -> LookupResult:
        """Return where messages with any of many keys or ids are; `slices_at` reads them.

        They are those that can be read from their topics now, found through the key index all at
        once. Raises StoreDamagedError.
        """
        return self._lookup.locate(wanted)

    def message_by_offset_id(self, offset_msg_id: str) -> StoredMessage:
        """Return the message with the broker's id. Raises MessageIdError, MessageNotFoundError."""
        check_text(offset_msg_id=offset_msg_id)
        return self._lookup.by_offset_id(offset_msg_id)

    def message_by_id(self, topic: str, msg_id: str) -> StoredMessage:
        """Return the topic's message with this unique or offset id, or MessageNotFoundError."""
        check_text(topic=topic, msg_id=msg_id)
        return self._lookup.by_id(topic, msg_id)

    def pending(self, kind: PendingKind) -> list[PendingRange]:
        """Return where `scheduled` messages wait to be due, or `half` ones to be decided, now.

        They are those of all topics; `scan_pending` reads them.
        """
        return self._pending.plan(kind)

    def scan_pending(
        self,
        part: PendingRange,
        topics: Sequence[str],
        columns: Sequence[str] = ("topic", "body", "dueTimestamp"),
        *,
        verify_crc: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part, a few MiB at a time: for the topics, if any are named.

        Columns: those of `scan`, and `dueTimestamp` of scheduled ones. Topic and queue are those
        they are for, their queue offset is where they wait. Raises what `scan` does.
        """
        return self._pending.scan(part, topics, columns, verify_crc=verify_crc)
