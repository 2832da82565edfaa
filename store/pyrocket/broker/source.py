"""The reading side of a store as one broker: every question takes all queues at once.

Over a network one call is one round trip, so nothing is asked queue by queue.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar, cast

import pyarrow as pa

from pyrocket.config import StoreConfig
from pyrocket.engine.key_lookup import LookupRequest, LookupResult
from pyrocket.errors import OffsetOutOfRangeError, StoreLockedError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.message_locations import MessageLocations
from pyrocket.message import ByteSpan, LogMark, MessageQueue, QueueOffsets
from pyrocket.metadata.topics import TopicConfig
from pyrocket.store import Store
from pyrocket.views.parts import ViewName, ViewPart
from pyrocket.views.pending import PendingRange

_PENDING = ("scheduled", "half")

_Value = TypeVar("_Value")

Part = PendingRange | ViewPart
"""Some rows of a view."""


@dataclass(frozen=True, order=True)
class QueueRange:
    """The messages of one queue from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many messages it has."""
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class SourceIdentity:
    """What the offsets of one broker count in.

    Attributes:
        store: The uuid of the store; empty if only Java has written to it.
        epoch: That of the log: it grows when a recovery has cut messages that were read.
        mark: The newest message before the offsets: it is missing if the store was restored from
            an older copy. None if there is none.
    """

    store: str
    epoch: int
    mark: LogMark | None = None


class StoreSource:
    """An open store, for reading or for writing. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def store_id(self) -> str:
        """The uuid of the store; empty if only Java has written to it."""
        return self._store.uuid

    def identities(self) -> dict[str, SourceIdentity]:
        """Return uuid and epoch of the store; it is one broker."""
        store = self._store
        return {store.broker_name: SourceIdentity(store=store.uuid, epoch=store.history.epoch)}

    def now_ms(self) -> int:
        """Return the time of the store's clock."""
        return self._store.now()

    def is_recovering(self) -> bool:
        """Whether a writer died while it recovered the store."""
        return self._store.history.recovery_is_interrupted

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""
        return self._store.topics.all()

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which names the nearest."""
        return self._store.topics.get(name)

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics."""
        return self._by_queue({topic: self._store.offsets(topic) for topic in topics})

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of any queues."""
        return {each: self._store.queue_range(each.topic, each.queue_id) for each in queues}

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the queues with messages that are no read queues any more."""
        return self._by_queue({topic: self._store.lost_queues(topic) for topic in topics})

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time."""
        find = self._store.offset_by_time
        return {each: find(each.topic, each.queue_id, ms) for each, ms in times_ms.items()}

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the queues that recoveries after the epoch have cut, and where."""
        ((_, epoch),) = epochs.items()
        if self._store.history.epoch == epoch:
            return {}
        found = {
            each: self._store.history.cut_since(epoch, each.topic, each.queue_id) for each in queues
        }
        return {each: cut for each, cut in found.items() if cut is not None}

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets."""
        return self._store.history.mark(_by_topic(offsets))

    def holds(self, mark: LogMark) -> bool | None:
        """Whether the log has the marked message."""
        return self._store.history.holds(mark)

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return where each range lies in the log, and about how many bytes it has."""
        return [self._store.raw.log_span(*_place(each)) for each in ranges]

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Return for each range and mark the offset that it reaches, and the bytes before."""
        return [self._store.raw.cut_by_bytes(*_place(each), marks) for each, marks in splits]

    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield raw records; several ranges of one topic come in one slice if they are small."""
        if len(ranges) > 1 and len({each.queue.topic for each in ranges}) == 1:
            places = [(each.queue.queue_id, each.start, each.end) for each in ranges]
            topic = ranges[0].queue.topic
            found = self._store.raw.slice_of_ranges(topic, places, where=where, tally=tally)
            if found is not None:
                yield found
                return
        for each in ranges:
            yield from self._store.raw.slices(*_place(each), where=where, tally=tally)

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return where the messages with some keys or ids are, by the key index."""
        return self._store.lookup.locate(request)

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the raw records at these locations."""
        return self._store.raw.slices_at(locations, where=where, tally=tally)

    def plan_view(
        self, view: str, *, topics: Sequence[str] = (), group: str = "", skips_damage: bool = False
    ) -> Sequence[Part]:
        """Return the parts of a view."""
        if view in _PENDING:
            return self._store.views.pending("half" if view == "half" else "scheduled")
        name = cast("ViewName", view)
        return self._store.views.plan(name, topics=topics, group=group, skips_damage=skips_damage)

    def read_view(
        self, part: Part, columns: Sequence[str], *, topics: Sequence[str] = (), verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        if isinstance(part, PendingRange):
            return self._store.views.scan_pending(part, topics, columns, verify_crc=verify_crc)
        return self._store.views.scan(part, columns, verify_crc=verify_crc)

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return what a group has committed, in these topics or in all."""
        groups = self._store.groups
        asked = groups.topics(group) if topics is None else topics
        return self._by_queue({topic: groups.committed(group, topic) for topic in asked})

    def commit(
        self,
        group: str,
        offsets: Mapping[MessageQueue, int],
        *,
        backwards: bool = False,
        within_s: float | None = None,
    ) -> dict[MessageQueue, int]:
        """Commit, and return what the group has then.

        A store that is open for reading is opened for writing for a moment; its clean end is left
        to others. `within_s` bounds the wait for the write lock.
        """
        with self._writing(within_s) as store:
            if not offsets:
                store.groups.create(group)
            after = {
                topic: _commit(store, group, topic, queues, backwards=backwards)
                for topic, queues in _by_topic(offsets).items()
                if topic in store.topics.all()
            }
        return self._by_queue(after)

    def deliver_due(self) -> bool:
        """Deliver what is due as the store's only writer, if there is none."""
        return self._store.deliver_due()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @contextmanager
    def _writing(self, seconds: float | None) -> Iterator[Store]:
        if not self._store.read_only:
            yield self._store
            self._store.flush()
            return
        config = None
        if seconds is not None:
            config = StoreConfig(lock_timeout_ms=int(1000 * seconds))
        store = Store.open(self._store.path, config=config)
        try:
            yield store
        finally:
            try:
                # The write lock also delivers what is due, which has to become durable.
                with suppress(StoreLockedError):
                    store.flush()
            finally:
                store.close(clean=False)

    def _by_queue(self, topics: Mapping[str, Mapping[int, _Value]]) -> dict[MessageQueue, _Value]:
        broker = self._store.broker_name
        return {
            MessageQueue(topic, broker, queue_id): value
            for topic, queues in topics.items()
            for queue_id, value in queues.items()
        }


def _commit(
    store: Store, group: str, topic: str, offsets: Mapping[int, int], *, backwards: bool
) -> Mapping[int, int]:
    """Commit in those queues that the topic still has; a queue that was cut, up to its end."""
    queues = store.topics.get(topic).read_queues
    here = {queue: at for queue, at in offsets.items() if queue < queues}
    try:
        return store.groups.commit(group, topic, here, backwards=backwards)
    except OffsetOutOfRangeError:
        ends = {queue: min(at, store.max_offset(topic, queue)) for queue, at in here.items()}
        return store.groups.commit(group, topic, ends, backwards=backwards)


def _place(each: QueueRange) -> tuple[str, int, int, int]:
    return each.queue.topic, each.queue.queue_id, each.start, each.end


def _by_topic(values: Mapping[MessageQueue, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for queue, value in values.items():
        topics.setdefault(queue.topic, {})[queue.queue_id] = value
    return topics
