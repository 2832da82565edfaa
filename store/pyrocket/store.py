"""`Store`: a directory of topics that any number of processes share.

The operations that most programs need are methods of the store. All others are methods of its
parts, such as `store.topics` and `store.lookup`. Each part is created on first use, so a process
that only stages rows or scans a queue creates no timers, transactions or delivery.
"""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import NoneType

import pyarrow as pa

from pyrocket.base.arguments import check_numbers, check_place, check_type, path_of
from pyrocket.base.clock import Clock
from pyrocket.base.config import Retention, StoreConfig
from pyrocket.disk.clock_file import clock_at
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating, translating_methods
from pyrocket.engine.engine import lazy_property
from pyrocket.engine.parts.group_admin import Groups
from pyrocket.engine.parts.history import History
from pyrocket.engine.parts.key_lookup import Lookup
from pyrocket.engine.parts.snapshot import CopyProgress, SnapshotReport, take_snapshot
from pyrocket.engine.parts.topic_admin import TopicAdmin
from pyrocket.engine.reader import Reader, iterate_messages
from pyrocket.engine.sender import Sender
from pyrocket.engine.service_runner import ServiceThread
from pyrocket.engine.writer import Writer
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import decode_slices
from pyrocket.metadata.identity import check_directory, layout_of
from pyrocket.metadata.retention import RetentionFile
from pyrocket.services.consumption import Consumption
from pyrocket.services.delay.timers import Timers
from pyrocket.services.services import Services
from pyrocket.services.sink.sink import Sink
from pyrocket.services.transactions.transactions import Transactions
from pyrocket.values.admin import CleanReport
from pyrocket.values.message import (
    AppendResult,
    Message,
    Position,
    QueueOffsets,
    SendResult,
    StoredMessage,
)
from pyrocket.views.pending import PendingMessages
from pyrocket.views.views import Views


@translating_methods
class Store:
    """A directory of topics. Open it with `Store.open`, close it or use it in a `with` block.

    Any number of processes and threads may append to and read from one directory at the same
    time. A store that is open for writing does not survive a fork: open it in the child.
    """

    def __init__(self, layout: Layout, config: StoreConfig, clock: Clock, read_only: bool) -> None:
        self._services = Services(layout, config, clock, read_only=read_only)
        self._engine, self._topics = self._services.engine, self._services.engine.topics

    @property
    def _reader(self) -> Reader:
        return self._engine.reader

    @classmethod
    @translating
    def open(
        cls,
        path: str | PathLike[str],
        *,
        create: bool = False,
        read_only: bool = False,
        config: StoreConfig | None = None,
        clock: Clock | None = None,
    ) -> "Store":
        """Open the store in the directory `path`; with `create`, it may be missing or empty.

        A read-only store writes nothing, takes no lock, and can be opened while others write. The
        default clock is the directory's test clock or the wall clock. Raises StoreNotFoundError,
        StorePermissionError, StoreLockedError, StoreDamagedError, UnsupportedError.
        """
        layout = layout_of(path)
        check_directory(layout, create=create and not read_only)
        return cls(layout, config or StoreConfig(), clock or clock_at(layout.clock), read_only)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self, *, clean: bool = True) -> None:
        """Close the store; the last writer to close flushes everything and shuts it down cleanly.

        With `clean=False`, a later writer does the clean shutdown; messages that were not flushed
        may be lost if the machine fails before that. Do not use a closed store.
        """
        self._services.close(clean=clean)

    @lazy_property
    def topics(self) -> TopicAdmin:
        """The topic table: all, get, create, update, delete."""
        return TopicAdmin(self._engine)

    @lazy_property
    def groups(self) -> Groups:
        """Consumer groups and their offsets: commit, query, reset, delete."""
        return Groups(self._engine)

    @lazy_property
    def lookup(self) -> Lookup:
        """Looks up messages by key or id."""
        return Lookup(self._engine)

    @lazy_property
    def views(self) -> Views:
        """Views of the store: the log, pending messages, retries, groups and topics."""
        pending = PendingMessages(self._engine, lambda: self.timers.entries())
        return Views(self._reader, self.groups, pending)

    @lazy_property
    def history(self) -> History:
        """Checks whether saved offsets still refer to the same messages."""
        return History(self._engine)

    @property
    def sink(self) -> Sink:
        """Batches that become visible completely and exactly once: stage, publish, discard."""
        return self._services.sink

    @property
    def timers(self) -> Timers:
        """Pending messages that have a due time instead of a delay level: count, list, cancel."""
        return self._services.timers

    @property
    def transactions(self) -> Transactions:
        """Half messages: send, commit, roll back, list."""
        return self._services.transactions

    @property
    def path(self) -> Path:
        """The absolute path of the store's directory."""
        return self._engine.layout.root

    @property
    def uuid(self) -> str:
        """The store's id; empty for a directory to which only brokers have written."""
        return self._engine.identity.store_id

    @property
    def config(self) -> StoreConfig:
        """The settings in effect: settings saved in the directory override the given ones."""
        return self._engine.config

    @property
    def broker_name(self) -> str:
        """The broker name saved in the directory."""
        return self.config.broker_name

    @property
    def read_only(self) -> bool:
        """Whether the store was opened with `read_only`."""
        return self._engine.read_only

    @property
    def retention(self) -> Retention | None:
        """The retention saved in the directory; None if messages are kept forever."""
        return RetentionFile(self._engine.layout).read()

    def set_retention(self, retention: Retention | None) -> None:
        """Save the retention for all writers; None keeps messages forever.

        The change is durable. Writers that have the store open apply it within ten seconds, unless
        a retention was given when they were opened. Raises StoreReadOnlyError, StoreLockedError.
        """
        check_type((Retention, NoneType), "Use a pyrocket.Retention, or None.", retention=retention)
        self._engine.writer.set_retention(retention)

    def now(self) -> int:
        """Return the store's time in epoch milliseconds, from its clock."""
        return self._engine.clock()

    def position(self) -> Position:
        """Return a snapshot; two snapshots are equal if nothing has changed in between. Cheap."""
        return self._reader.position()

    def append(self, message: Message) -> SendResult:
        """Append one message. Raises MessageError, TopicNotFoundError, StoreLockedError."""
        return self._services.sender.append(message)

    def append_batch(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        whole: bool = False,
    ) -> AppendResult:
        """Append all rows or none; they become visible together. `topic` overrides the column.

        With `whole`, the rows are durable when this returns, and a power loss leaves all or none.
        Columns: `pyrocket.SEND_COLUMNS`. Rows with neither queue id nor sharding key are spread
        over the write queues, from `first_queue` on. Raises SchemaError, and MessageError with the
        row number (from 0).
        """
        return self._services.sender.append_batch(batch, topic, first_queue, whole=whole)

    def flush(self) -> None:
        """Block until all messages appended before the call, by any process, are durable."""
        self._engine.writer.flush()

    def run_services(self) -> ServiceThread:
        """Start a thread that delivers due messages on time, until its `stop` or `Store.close`.

        Without such a thread, each writer delivers due messages after its appends.
        """
        return self._services.runner.start()

    def deliver_due(self) -> bool:
        """Deliver due messages for at most half a second; return whether any were due.

        A read-only store opens its directory for writing to do so, at most once a second, and
        delivers nothing if that fails.
        """
        if not self.read_only:
            return self._services.runner.drain(self._engine.writer) > 0
        return self._services.reader_delivery.deliver_due(self._open_if_unlocked)

    def _open_if_unlocked(self) -> "Store":
        config = StoreConfig(lock_timeout_ms=0)
        return Store.open(self.path, config=config, clock=self._engine.clock)

    def clean(
        self, *, hours: float | None = None, total_bytes: int | None = None, dry_run: bool = False
    ) -> CleanReport:
        """Delete the oldest log files by age or down to a size; the default is `retention`.

        Files with pending delayed messages, and all files after them, are kept and listed in the
        report. Staged rows of a sink that were not published within a week are deleted, too. With
        `dry_run` nothing is deleted, and the store may be read-only. Raises OptionError.
        """
        return self._services.clean(hours=hours, total_bytes=total_bytes, dry_run=dry_run)

    def snapshot(
        self, target: str | PathLike[str], progress: CopyProgress | None = None
    ) -> SnapshotReport:
        """Copy the store, even while it is in use, to `target`, which must be missing or empty.

        `progress` is called with the bytes done, the total bytes, and the file that was copied.
        """
        engine, where = self._engine, path_of(target, "target", "SNAPSHOT_TARGET")
        lock = None if self.read_only else engine.writer.exclusive
        return take_snapshot(engine.layout, self._reader, where, lock, progress)

    def offsets(self, topic: str) -> dict[int, QueueOffsets]:
        """Return the offset range of each read queue of a topic, by queue id."""
        return self._reader.offsets(self._topics.get(topic))

    def lost_queues(self, topic: str) -> dict[int, QueueOffsets]:
        """Return the offset ranges of queues that have messages but are no longer read queues."""
        kept = self._topics.get(topic).read_queues
        lost = (queue for queue in self._reader.files.queues.of_topic(topic) if queue >= kept)
        ranges = {queue_id: self.queue_range(topic, queue_id) for queue_id in lost}
        return {queue_id: has for queue_id, has in ranges.items() if has.minimum < has.maximum}

    def queue_range(self, topic: str, queue_id: int) -> QueueOffsets:
        """Return the offset range of any queue, even of a queue that was removed from its topic.

        The remaining messages of such a queue can be scanned. For a queue without messages, both
        offsets are its former end, or 0 if the end is unknown.
        """
        check_place(topic, queue_id)
        return self._reader.system_offsets(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the minimum offset: that of the oldest message that is still in the queue."""
        check_numbers(queue_id=queue_id)
        return self._reader.queue_offsets(self._topics.get(topic), queue_id).minimum

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the maximum offset: that of the next message."""
        check_numbers(queue_id=queue_id)
        return self._reader.queue_offsets(self._topics.get(topic), queue_id).maximum

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after the time, or the maximum.

        The queue may have been removed from its topic if it still has messages.
        """
        check_numbers(queue_id=queue_id, timestamp_ms=timestamp_ms)
        return self._reader.offset_by_time(self._topics.get(topic), queue_id, timestamp_ms)

    def read(
        self, topic: str, queue_id: int, offset: int, max_messages: int = 32
    ) -> list[StoredMessage]:
        """Return up to `max_messages` messages from `offset` on, like a pull; empty at the end.

        Raises OffsetOutOfRangeError for an offset below the minimum or above the maximum.
        """
        check_numbers(queue_id=queue_id, offset=offset, max_messages=max_messages)
        return self._reader.read(self._topics.get(topic), queue_id, offset, max_messages)

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

        The end is fixed by the call; the default range is the whole queue. A few MiB are in memory
        at a time. Raises TopicNotFoundError, QueueNotFoundError, OffsetOutOfRangeError, also during
        the iteration if messages are deleted before they are read.
        """
        return iterate_messages(self._reader, self._topics.get(topic), queue_id, start, end)

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
        """Yield exactly the messages [start, end) that match `where`, in batches of a few MiB.

        Columns: `pyrocket.SCAN_COLUMNS`; only the requested columns are built. `verify_crc` checks
        the checksums. A `tally` counts the examined messages. Raises OffsetOutOfRangeError,
        StoreDamagedError, and SchemaError for a `bodyText` that is not UTF-8.
        """
        known = self._topics.get(topic)
        check_numbers(queue_id=queue_id, start=start, end=end)
        slices = self._reader.slices(known, queue_id, start, end, where=where, tally=tally)
        join = where is not None and not where.wants_all
        return decode_slices(slices, columns, verify_crc=verify_crc, join=join)


def reader_of(store: Store) -> Reader:
    """Return the reader of a store, for `StoreSource`."""
    return store._reader


def sender_of(store: Store) -> Sender:
    """Return the object with which a broker appends the messages of its clients."""
    return store._services.sender


def consumption_of(store: Store) -> Consumption:
    """Return the object with which a broker tracks the messages that groups receive and ack."""
    return store._services.consumption


def call_on_change(store: Store, callback: Callable[[], None]) -> None:
    """Call `callback` after each change by this object, when `Store.position` may differ.

    It is called by the thread that made the change, and must neither block nor raise. It is not
    called for changes by other objects and processes.
    """
    store._services.hooks.after_release.append(callback)


def writer_of(store: Store) -> Writer:
    """Return the writer of a store, for the broker that serves it. Raises StoreReadOnlyError."""
    return store._engine.writer
