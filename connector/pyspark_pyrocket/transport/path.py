"""The directory of a store as a target, a source and a sink.

Sources stay open, one per directory and process: Spark reuses its Python workers, so the next
micro-batch finds its store open. A directory that was replaced under its path is opened again.
"""

import os
import socket
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyrocket import (
    AppendResult,
    Published,
    QueueRange,
    ReadPlan,
    Retention,
    SinkBatch,
    Staged,
    Stager,
    Store,
    StoreConfig,
    StoreSource,
    TopicConfig,
)
from pyrocket.base.config import DEFAULT_QUEUES
from pyrocket.errors import StoreLockedError, StoreNotFoundError, StoreNotSharedError

from pyspark_pyrocket.transport.interface import Capability

_MAX_OPEN = 8
"""Open stores per process; a query has one or two."""

_open: dict[str, tuple[int, "PathSource"]] = {}
"""Path → a descriptor of the directory, which prevents reuse of its inode, and its source."""

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
    broker = ""

    @property
    def options(self) -> dict[str, str]:
        return {"path": self.path}

    @property
    def directory(self) -> str:
        return self.path

    def describe(self) -> str:
        return self.path

    def of_store(self, store_id: str | None) -> "PathTarget":
        return PathTarget(self.path, store_id)

    def of_broker(self, name: str, earlier: str = "") -> "PathTarget":
        """Return this target: a directory belongs to one broker."""
        return self

    def waiting(self) -> "PathTarget":
        """Return this target: a directory does not restart."""
        return self

    def open_source(self) -> "PathSource":
        """Return the store opened for reading; costs two stats if it is open already."""
        return self._checked(lambda: _shared_source(self.path))

    def open_reader(self, ranges: Sequence[QueueRange]) -> "PathSource":
        return self.open_source()

    def find_source(self) -> "PathSource | None":
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
        return self._checked(lambda: PathSource(Store.open(self.path, read_only=True)))

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "PathSink":
        """Open the store for writing, or for reading if staging, which changes no shared file."""

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
        store_id = side.store_id
        # A directory that only brokers have written has no uuid to compare.
        if self.store_id and store_id != self.store_id:
            if isinstance(side, PathSink):
                side.close(clean=False)
            raise self.not_shared(
                f"there is the store {store_id or 'without an id'}, not {self.store_id}"
            )
        return side

    def not_shared(self, reason: str) -> StoreNotSharedError:
        return StoreNotSharedError(
            f"A task on {socket.gethostname()} uses {self.path} like the driver, but {reason}.",
            remedy="The directory has to be the same one for the driver and all executors.",
        )


class PathSource(StoreSource):
    """A store that is open for reading."""

    def __init__(self, store: Store, seconds: float | None = None) -> None:
        super().__init__(store)
        self._seconds = seconds

    @property
    def target(self) -> PathTarget:
        return PathTarget(str(self.store.path), self.store.uuid)

    def within(self, seconds: float, *, lock: float | None = None) -> "PathSource":
        """Return the store with another longest wait for the write lock; only that takes time."""
        return PathSource(self.store, seconds if lock is None else lock)

    def by_broker(self, expected: Collection[str] = ()) -> dict[str, "PathSource"]:
        """Return this source: a directory belongs to one broker."""
        return {self.store.broker_name: self}

    def plan(self, topics: Collection[str], run: str = "") -> ReadPlan:
        """Return a plan without bounds, which cost no round trip.

        Without `run`, because the directory may be replaced by an older copy.
        """
        return super().plan(())

    def version(self) -> Hashable:
        """Return the store, and its position in the shared state."""
        return self.store, self.store.position()

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Return False immediately: a directory does not notify its readers."""
        return False

    @contextmanager
    def writing(self) -> Iterator[Store]:
        """Open the store for writing for a moment; a clean shutdown is left to other processes."""
        config = None
        if self._seconds is not None:
            config = StoreConfig(lock_timeout_ms=int(1000 * self._seconds))
        store = Store.open(self.store.path, config=config)
        try:
            yield store
        finally:
            try:
                # Releasing the write lock also delivers due messages, which then have to become
                # durable.
                with suppress(StoreLockedError):
                    store.flush()
            finally:
                store.close(clean=False)


class PathSink:
    """A store that is open for writing, or for staging."""

    def __init__(self, store: Store) -> None:
        self._store, self.flush, self.close = store, store.flush, store.close
        # The results of the last append and the last publish. A directory loses no reply, so no
        # earlier call is repeated.
        self._appended: dict[str, AppendResult] = {}
        self._published: dict[SinkBatch, Published] = {}

    @property
    def store_id(self) -> str:
        return self._store.uuid

    @property
    def retention(self) -> Retention | None:
        return self._store.retention

    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        if not create or topic in self._store.topics.all():
            return self._store.topics.get(topic)
        count = queues or DEFAULT_QUEUES
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
        result = self._store.append_batch(batch, topic=topic, first_queue=first_queue)
        self._appended.clear()
        self._appended[repeat_id] = result
        return result

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> Stager:
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
        if not anonymous:
            return self._store.sink.publish(
                batch, staged, on_difference=on_difference, on_gap=on_gap
            )
        if batch not in self._published:
            self._published.clear()
            self._published[batch] = self._store.sink.publish_anonymous(staged)
        return self._published[batch]

    def discard(self, staged: Sequence[Staged]) -> None:
        self._store.sink.discard(staged)


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
