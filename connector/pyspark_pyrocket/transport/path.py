"""The directory of a store as a target, a source and a sink.

Sources stay open, one per directory and process: Spark reuses its Python workers, so the next
micro-batch finds its store open. A directory that was replaced under its path is opened again.
"""

import os
import socket
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar, cast

import pyarrow as pa
from pyrocket import (
    AppendResult,
    ByteSpan,
    LogMark,
    LookupRequest,
    LookupResult,
    MessageFilter,
    MessageLocations,
    MessageQueue,
    PendingRange,
    Published,
    QueueOffsets,
    RecordSlice,
    Retention,
    ScanTally,
    SinkBatch,
    Staged,
    Store,
    StoreConfig,
    TopicConfig,
    ViewName,
)
from pyrocket.config import DEFAULT_QUEUES
from pyrocket.errors import (
    OffsetOutOfRangeError,
    StoreLockedError,
    StoreNotFoundError,
    StoreNotSharedError,
)

from pyspark_pyrocket.transport.interface import (
    Capability,
    Part,
    QueueRange,
    RowStager,
    SourceIdentity,
)

_MAX_OPEN = 8
"""Open stores per process; a query has one or two."""

_open: dict[str, tuple[int, "PathSource"]] = {}
"""Path → a descriptor of the directory, so that its inode is not reused, and its source."""

_PENDING = ("scheduled", "half")

_Value = TypeVar("_Value")
_Side = TypeVar("_Side", "PathSource", "PathSink")


@dataclass(frozen=True)
class PathTarget:
    """The directory of a store.

    Attributes:
        path: Absolute.
        store_id: In a task, the uuid of the driver's store, empty if that has none; None on the
            driver, which opens any store.
    """

    path: str
    store_id: str | None = None

    capabilities = frozenset(Capability)

    @property
    def options(self) -> dict[str, str]:
        """The option `path`."""
        return {"path": self.path}

    @property
    def directory(self) -> str:
        """The path."""
        return self.path

    def describe(self) -> str:
        """Return the path."""
        return self.path

    def of_store(self, store_id: str | None) -> "PathTarget":
        """Return the target that opens only this store; with None, any store."""
        return PathTarget(self.path, store_id)

    def open_source(self) -> "PathSource":
        """Return the store opened for reading; costs two stats if it is open already."""
        return self._checked(lambda: _shared_source(self.path))

    def find_source(self) -> "PathSource | None":
        """Return the same, or None if there is no store."""
        try:
            return self.open_source()
        except StoreNotFoundError as error:
            if error.code != StoreNotFoundError.default_code:
                raise
            return None

    def close_source(self) -> None:
        """Close the store, if `open_source` has opened it in this process."""
        forget(self.path)

    def open_own_source(self) -> "PathSource":
        """Open the store for reading, for this caller, who closes it."""
        return self._checked(lambda: PathSource(Store.open(self.path, read_only=True)))

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "PathSink":
        """Open the store for writing; for staging, which changes no shared file, for reading."""

        def opened() -> PathSink:
            store = Store.open(self.path, create=create, read_only=staging, config=config)
            return PathSink(store)

        return self._checked(opened)

    def _checked(self, opened: Callable[[], _Side]) -> _Side:
        """Open a source or a sink. Raises StoreNotSharedError for another store."""
        if self.store_id is None:
            return opened()
        try:
            side = opened()
        except StoreNotFoundError as error:
            reason = error.message.removesuffix(".")
            raise self.not_shared(f"there is no store: {reason}") from error
        found = side.store_id
        # A directory that only brokers have written has no uuid to compare.
        if self.store_id and found != self.store_id:
            if isinstance(side, PathSink):
                side.close(clean=False)
            raise self.not_shared(
                f"there is the store {found or 'without an id'}, not {self.store_id}"
            )
        return side

    def not_shared(self, reason: str) -> StoreNotSharedError:
        """Return the error for a task that does not find the driver's store."""
        return StoreNotSharedError(
            f"A task on {socket.gethostname()} uses {self.path} like the driver, but {reason}.",
            remedy="The directory has to be the same one for the driver and all executors.",
        )


class PathSource:
    """A store that is open for reading."""

    def __init__(self, store: Store, seconds: float | None = None) -> None:
        self._store, self._seconds = store, seconds

    @property
    def target(self) -> PathTarget:
        """The directory, and the store that is there."""
        return PathTarget(str(self._store.path), self._store.uuid)

    @property
    def store_id(self) -> str:
        """The uuid of the store; empty if only brokers have written to it."""
        return self._store.uuid

    def within(self, seconds: float) -> "PathSource":
        """Return the store with another deadline: it bounds the wait for the write lock."""
        return PathSource(self._store, seconds)

    def identities(self) -> dict[str, SourceIdentity]:
        """Return uuid and epoch of the store; it is one broker."""
        store = self._store
        return {store.broker_name: SourceIdentity(store=store.uuid, epoch=store.history.epoch)}

    def now_ms(self) -> int:
        """Return the time of the store's clock."""
        return self._store.now()

    def version(self) -> Hashable:
        """Return the store, and its position in the shared state."""
        return self._store, self._store.position()

    def is_recovering(self) -> bool:
        """Return whether a writer died while it recovered the store."""
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
        """Return former read queues that still have messages."""
        return self._by_queue({topic: self._store.lost_queues(topic) for topic in topics})

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time."""
        find = self._store.offset_by_time
        return {each: find(each.topic, each.queue_id, ms) for each, ms in times_ms.items()}

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the queues that recoveries have truncated since the epoch, and their new ends."""
        history, broker = self._store.history, self._store.broker_name
        epoch = epochs.get(broker)
        if epoch is None or history.epoch == epoch:
            return {}
        found = {
            each: history.cut_since(epoch, each.topic, each.queue_id)
            for each in queues
            if each.broker == broker
        }
        return {each: cut for each, cut in found.items() if cut is not None}

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets."""
        return self._store.history.mark(_by_topic(offsets))

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log has the marked message."""
        return self._store.history.holds(mark)

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return the position of each range in the log, and its approximate size in bytes."""
        return [self._store.raw.log_span(*_place(each)) for each in ranges]

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Return an offset for each mark of each range, and the size of the messages before it."""
        return [self._store.raw.cut_by_bytes(*_place(each), marks) for each, marks in splits]

    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield raw records, range after range."""
        for each in ranges:
            yield from self._store.raw.slices(*_place(each), where=where, tally=tally)

    def joined_slice(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return small ranges of one topic as one slice; None if they are too large together."""
        places = [(each.queue.queue_id, each.start, each.end) for each in ranges]
        topic = ranges[0].queue.topic
        return self._store.raw.slice_of_ranges(topic, places, where=where, tally=tally)

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of the messages with some keys or ids, from the key index."""
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
        """Return the committed offsets of a group, in these topics or in all."""
        groups = self._store.groups
        asked = groups.topics(group) if topics is None else topics
        return self._by_queue({topic: groups.committed(group, topic) for topic in asked})

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Open the store for writing, commit, and close it without a clean shutdown."""
        with self._writing() as store:
            if not offsets:
                store.groups.create(group)
            after = {
                topic: _commit(store, group, topic, queues, backwards=backwards)
                for topic, queues in _by_topic(offsets).items()
                if topic in store.topics.all()
            }
        return self._by_queue(after)

    def deliver_due(self) -> bool:
        """Deliver due messages if the store has no writer."""
        return self._store.deliver_due()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @contextmanager
    def _writing(self) -> Iterator[Store]:
        config = None
        if self._seconds is not None:
            config = StoreConfig(lock_timeout_ms=int(1000 * self._seconds))
        store = Store.open(self._store.path, config=config)
        try:
            yield store
        finally:
            try:
                # Releasing the write lock also delivers due messages, which have to become durable.
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


class PathSink:
    """A store that is open for writing, or for staging."""

    def __init__(self, store: Store, seconds: float | None = None) -> None:
        self._store, self._seconds = store, seconds
        # Results of the last calls: a directory loses no reply, so only the last one is repeated.
        self._appended: dict[str, AppendResult] = {}
        self._published: dict[SinkBatch, Published] = {}

    def within(self, seconds: float) -> "PathSink":
        """Return the store with another deadline: it bounds the waits for locks and flushes."""
        sink = PathSink(self._store, seconds)
        sink._appended, sink._published = self._appended, self._published
        return sink

    def _deadline(self) -> AbstractContextManager[None]:
        # Staging takes no lock.
        unbounded = self._seconds is None or self._store.read_only
        return nullcontext() if unbounded else self._store.within(self._seconds or 0)

    @property
    def store_id(self) -> str:
        """The uuid of the store."""
        return self._store.uuid

    @property
    def retention(self) -> Retention | None:
        """The retention of the directory."""
        return self._store.retention

    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic, created if it is missing and `create`."""
        if not create or topic in self._store.topics.all():
            return self._store.topics.get(topic)
        count = queues or DEFAULT_QUEUES
        with self._deadline():
            return self._store.topics.create(topic, read_queues=count, write_queues=count)

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        repeat_id: str = "",
    ) -> AppendResult:
        """Append all rows, or none; a repeat of the last append is recognised by its id."""
        if repeat_id and repeat_id in self._appended:
            return self._appended[repeat_id]
        with self._deadline():
            result = self._store.append_batch(batch, topic=topic, first_queue=first_queue)
        self._appended.clear()
        self._appended[repeat_id] = result
        return result

    def flush(self) -> None:
        """Flush everything appended before; it is durable on return."""
        with self._deadline():
            self._store.flush()

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> RowStager:
        """Return the stager for the rows of one task."""
        return self._store.sink.stage(batch, partition=partition, attempt=attempt)

    def publish(
        self,
        batch: SinkBatch,
        staged: Sequence[Staged],
        *,
        anonymous: bool = False,
        on_difference: str = "fail",
        on_gap: str = "fail",
    ) -> Published:
        """Make staged rows visible, all together and durably; a repeat changes nothing."""
        with self._deadline():
            if not anonymous:
                return self._store.sink.publish(
                    batch, staged, on_difference=on_difference, on_gap=on_gap
                )
            if batch not in self._published:
                self._published.clear()
                self._published[batch] = self._store.sink.publish_anonymous(staged)
            return self._published[batch]

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove staged rows."""
        self._store.sink.discard(staged)

    def close(self, *, clean: bool = True) -> None:
        """Close the store."""
        with self._deadline():
            self._store.close(clean=clean)


def forget(path: str) -> None:
    """Close the store at `path`, if it is open here."""
    known = _open.pop(path, None)
    if known is not None:
        os.close(known[0])
        known[1].close()


def _shared_source(path: str) -> PathSource:
    known = _open.get(path)
    if known is not None:
        if _is_at(path, known[0]):
            return known[1]
        forget(path)
    while len(_open) >= _MAX_OPEN:
        forget(next(iter(_open)))
    source = PathSource(Store.open(path, read_only=True))
    _open[path] = (os.open(path, os.O_RDONLY | os.O_DIRECTORY), source)
    return source


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def _commit(
    store: Store, group: str, topic: str, offsets: Mapping[int, int], *, backwards: bool
) -> Mapping[int, int]:
    """Commit in the queues that the topic still has; in a truncated queue, at most its end."""
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
