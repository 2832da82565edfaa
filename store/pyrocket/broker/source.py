"""`StoreSource`: the reading side of the store of one broker.

Every method takes all queues at once, because over a network each call is a round trip.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import pyarrow as pa

from pyrocket.base.arguments import check_all_numbers, check_place, check_type
from pyrocket.disk.os_errors import translating
from pyrocket.errors import OffsetOutOfRangeError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.store import Store, reader_of
from pyrocket.values.admin import TopicConfig
from pyrocket.values.lookup import LookupRequest, LookupResult, MessageLocations
from pyrocket.values.message import (
    ByteSpan,
    LogMark,
    MessageQueue,
    QueueOffsets,
    QueueRange,
    SourceIdentity,
)
from pyrocket.values.source import Part, PendingRange, ReadPlan, ViewName

_PENDING = ("scheduled", "half")

_Value = TypeVar("_Value")


class StoreSource:
    """Reads an open store for clients. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self.store, self._reader = store, reader_of(store)

    @property
    def store_id(self) -> str:
        """The uuid of the store; empty if only RocketMQ has written to it."""
        return self.store.uuid

    def identities(self) -> dict[str, SourceIdentity]:
        """Return the uuid and epoch of the store by broker name; there is one broker."""
        store = self.store
        return {store.broker_name: SourceIdentity(store=store.uuid, epoch=store.history.epoch)}

    def now_ms(self) -> int:
        """Return the time of the store's clock."""
        return self.store.now()

    def is_recovering(self) -> bool:
        """Whether a writer died while recovering the store."""
        return self.store.history.recovery_is_interrupted

    def plan(self, topics: Collection[str], run: str = "") -> ReadPlan:
        """Return what the planning of a micro-batch reads, with the bounds of these topics."""
        store, existing = self.store, self.topics()
        return ReadPlan(
            broker=store.broker_name,
            store=store.uuid,
            epoch=store.history.epoch,
            run=run,
            topics=[*existing.values()],
            bounds=self.bounds([topic for topic in topics if topic in existing]),
        )

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""
        return self.store.topics.all()

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which suggests the nearest name."""
        return self.store.topics.get(name)

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the minimum and maximum offset of each read queue of the topics."""
        return self._by_queue({topic: self.store.offsets(topic) for topic in topics})

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the minimum and maximum offset of each of these queues."""
        return {queue: self.store.queue_range(queue.topic, queue.queue_id) for queue in queues}

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return former read queues that still have messages."""
        return self._by_queue({topic: self.store.lost_queues(topic) for topic in topics})

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return for each queue the offset of the first message stored at or after a time."""
        find = self.store.offset_by_time
        return {queue: find(queue.topic, queue.queue_id, ms) for queue, ms in times_ms.items()}

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the new end offset of each queue that a recovery after this epoch truncated."""
        history, broker = self.store.history, self.store.broker_name
        epoch = epochs.get(broker)
        if epoch is None or history.epoch == epoch:
            return {}
        cuts = {
            queue: history.cut_since(epoch, queue.topic, queue.queue_id)
            for queue in queues
            if queue.broker == broker
        }
        return {queue: cut for queue, cut in cuts.items() if cut is not None}

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets."""
        return self.store.history.mark(_by_topic(offsets))

    def holds(self, mark: LogMark) -> bool | None:
        """Whether the log has the marked message."""
        return self.store.history.holds(mark)

    @translating
    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return the location of each range in the log, and its approximate size in bytes."""
        return [self._reader.log_span(*place) for place in _places(ranges)]

    @translating
    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Return, for each size limit, the highest offset within it, and the bytes up to there.

        Limits are ascending. Reads 20 bytes per message up to the last one.
        """
        check_type(Sequence, "Use a list of (range, sizes).", splits=splits)
        for split in splits:
            if not isinstance(split, tuple) or len(split) != 2:
                check_type((), "Use (range, sizes).", **{"one of the splits": split})
            check_all_numbers(sizes=split[1])
        places = _places([part for part, _ in splits])
        cut = self._reader.cut_by_bytes
        return [cut(*place, marks) for place, (_, marks) in zip(places, splits, strict=True)]

    @translating
    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages of ranges that match `where` as raw records, range after range.

        A slice has a few MiB and is valid until the next one is requested. A `tally` counts the
        messages examined. `decode_slices` turns slices into columns. Raises
        OffsetOutOfRangeError, StoreDamagedError.
        """
        reader = self._reader
        for part, (topic, *place) in zip(ranges, _places(ranges), strict=True):
            if (end := self._valid_end(part)) < part.end:
                raise OffsetOutOfRangeError(
                    f"queue {part.queue.queue_id} of {topic!r} was truncated at {end}: it no longer"
                    f" has [{part.start}, {part.end}).",
                    remedy="Other messages have these offsets now.",
                )
            yield from reader.slices(reader.topics.get(topic), *place, where=where, tally=tally)

    def _valid_end(self, part: QueueRange) -> int:
        """Return up to which offset the queue still has the messages of a range."""
        cut = None
        if part.epoch is not None:
            cut = self.store.history.cut_since(part.epoch, part.queue.topic, part.queue.queue_id)
        return part.end if cut is None else min(part.end, cut)

    @translating
    def joined_slice(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return small ranges of one topic as one slice, in about the time of reading one range.

        Returns None if the messages have more than a few MiB or a range cannot be read; in this
        case, read each range separately.
        """
        places = _places(ranges)
        if not places or any(self._valid_end(part) < part.end for part in ranges):
            return None
        topic = self._reader.topics.get(places[0][0])
        where, tally = where or MessageFilter(), tally or ScanTally()
        return self._reader.joined_slice(topic, [place[1:] for place in places], where, tally)

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of the messages with the requested keys or ids."""
        return self.store.lookup.locate(request)

    @translating
    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the raw records at these locations, as `slices` does."""
        check_type(MessageLocations, "Use the result of `locate`.", locations=locations)
        return self._reader.located(locations, where or MessageFilter(), tally or ScanTally())

    def plan_view(
        self, view: str, *, topics: Sequence[str] = (), group: str = "", skips_damage: bool = False
    ) -> Sequence[Part]:
        """Return the parts of a view."""
        if view in _PENDING:
            return self.store.views.pending("half" if view == "half" else "scheduled")
        name = cast("ViewName", view)
        return self.store.views.plan(name, topics=topics, group=group, skips_damage=skips_damage)

    def read_view(
        self, part: Part, columns: Sequence[str], *, topics: Sequence[str] = (), verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        if isinstance(part, PendingRange):
            return self.store.views.scan_pending(part, topics, columns, verify_crc=verify_crc)
        return self.store.views.scan(part, columns, verify_crc=verify_crc)

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return the offsets that a group has committed, in these topics or in all."""
        groups = self.store.groups
        asked = groups.topics(group) if topics is None else topics
        return self._by_queue({topic: groups.committed(group, topic) for topic in asked})

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit durably, and return the group's offsets in these topics."""
        with self.writing() as store:
            if not offsets:
                store.groups.create(group)
            after = {
                topic: _commit(store, group, topic, queues, backwards=backwards)
                for topic, queues in _by_topic(offsets).items()
                if topic in store.topics.all()
            }
        return self._by_queue(after)

    def deliver_due(self) -> bool:
        """Deliver due messages for at most half a second; return whether any were due."""
        return self.store.deliver_due()

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    @contextmanager
    def writing(self) -> Iterator[Store]:
        """Yield the store for writing, and flush it afterwards."""
        yield self.store
        self.store.flush()

    def _by_queue(self, topics: Mapping[str, Mapping[int, _Value]]) -> dict[MessageQueue, _Value]:
        broker = self.store.broker_name
        return {
            MessageQueue(topic, broker, queue_id): value
            for topic, queues in topics.items()
            for queue_id, value in queues.items()
        }


def _commit(
    store: Store, group: str, topic: str, offsets: Mapping[int, int], *, backwards: bool
) -> Mapping[int, int]:
    """Commit offsets of queues that the topic still has, each at most the queue's end offset."""
    queues = store.topics.get(topic).read_queues
    here = {queue: at for queue, at in offsets.items() if queue < queues}
    try:
        return store.groups.commit(group, topic, here, backwards=backwards)
    except OffsetOutOfRangeError:
        ends = {queue: min(at, store.max_offset(topic, queue)) for queue, at in here.items()}
        return store.groups.commit(group, topic, ends, backwards=backwards)


def _places(ranges: Sequence[QueueRange]) -> list[tuple[str, int, int, int]]:
    check_type(Sequence, "Use a list of pyrocket.QueueRange.", ranges=ranges)
    for part in ranges:
        check_type(QueueRange, "Use a pyrocket.QueueRange.", **{"one of the ranges": part})
        check_place(part.queue.topic, part.queue.queue_id, start=part.start, end=part.end)
    return [(part.queue.topic, part.queue.queue_id, part.start, part.end) for part in ranges]


def _by_topic(values: Mapping[MessageQueue, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for queue, value in values.items():
        topics.setdefault(queue.topic, {})[queue.queue_id] = value
    return topics
