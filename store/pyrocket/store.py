"""`Store`: a directory of topics, for as many processes as like."""

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import NoneType

import pyarrow as pa

from pyrocket.arguments import check_numbers, check_text, check_type, path_of
from pyrocket.clock import Clock
from pyrocket.config import DEFAULT_QUEUES, Retention, StoreConfig
from pyrocket.disk.clock_file import clock_at
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating, translating_methods
from pyrocket.engine.engine import lazy_property
from pyrocket.engine.group_admin import Groups
from pyrocket.engine.reader_delivery import Advancing
from pyrocket.engine.removable import check_limits, preview
from pyrocket.engine.retention_rules import CleanReport
from pyrocket.engine.service_runner import ServiceThread
from pyrocket.engine.snapshot import Progress, SnapshotReport, take_snapshot
from pyrocket.engine.topic_admin import TopicAdmin
from pyrocket.message import AppendResult, Message, SendResult
from pyrocket.metadata.epochs import Epochs
from pyrocket.metadata.identity import check_directory, layout_of
from pyrocket.metadata.retention import RetentionFile
from pyrocket.metadata.topics import PERM_READ, PERM_WRITE, TopicConfig
from pyrocket.reading import Reading
from pyrocket.services.delay.timers import Timers
from pyrocket.services.services import Services
from pyrocket.services.sink.sink import Sink
from pyrocket.services.transactions.transactions import Transactions
from pyrocket.views.pending import PendingMessages
from pyrocket.views.views import Views


@translating_methods
class Store(Reading):
    """A directory of topics. Open it with `Store.open`, close it or use it in a `with` block.

    Any number of processes and threads may append to and read from one directory at the same
    time. A store that is open for writing does not survive a fork: open it in the child.
    """

    def __init__(self, layout: Layout, config: StoreConfig, clock: Clock, read_only: bool) -> None:
        self._layout, self._clock = layout, clock
        self._services = Services(layout, config, clock, read_only=read_only)
        self._engine = self._services.engine
        super().__init__(self._engine.reader)

    @lazy_property
    def _advancing(self) -> Advancing:
        return Advancing(self._layout, self._reader, self._clock)

    @lazy_property
    def _pending(self) -> PendingMessages:
        return PendingMessages(self._layout, self._reader, lambda: self.timers.entries())

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
        """Open the directory `path`, making it a store if it is missing or empty and `create`.

        Read-only opening writes nothing, not even a lock, and works while others write. Without a
        `clock` it is the wall clock, or a test's (`pyrocket.testing`). Raises
        StoreNotFoundError, StorePermissionError, StoreLockedError, StoreDamagedError,
        UnsupportedError.
        """
        layout = layout_of(path)
        check_directory(layout, create=create and not read_only)
        return cls(layout, config or StoreConfig(), clock or clock_at(layout.clock), read_only)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self, *, clean: bool = True) -> None:
        """Close; the last writer to close makes everything durable and ends cleanly.

        With `clean=False` the clean end is left to a later writer: nothing is lost by it while the
        machine stays up, see `flush`. Reading after a close opens files again; do not.
        """
        self._services.close(clean=clean)

    @property
    def path(self) -> Path:
        """The directory, absolute."""
        return self._layout.root

    @property
    def uuid(self) -> str:
        """The store's id; empty for a directory that only Java has written."""
        return self._reader.identity.store_id

    @property
    def config(self) -> StoreConfig:
        """The settings as they count: the directory's where it has them, else as given."""
        return self._reader.identity.config

    @property
    def broker_name(self) -> str:
        """The broker name that the directory carries."""
        return self.config.broker_name

    @property
    def read_only(self) -> bool:
        """Whether writes are refused."""
        return self._engine.read_only

    @property
    def epoch(self) -> int:
        """The number of recoveries that may have cut the log."""
        return Epochs(self._layout).current

    @property
    def recovery_is_interrupted(self) -> bool:
        """Whether a writer died in a recovery: until the next one queues end where durable."""
        return self._reader.bound() == self._reader.interrupted_end() > 0

    def cut_since(self, epoch: int, topic: str, queue_id: int) -> int | None:
        """Return the smallest offset at which a recovery after `epoch` cut the queue, or None."""
        check_text(topic=topic)
        check_numbers(epoch=epoch, queue_id=queue_id)
        return Epochs(self._layout).cut_since(epoch, topic, queue_id)

    @property
    def retention(self) -> Retention | None:
        """How long the directory says that messages are kept; None: all are kept."""
        return RetentionFile(self._layout).read()

    def set_retention(self, retention: Retention | None) -> None:
        """Set how long every writer keeps messages from now on; None keeps all.

        Kept in the directory, durably. Writers that have it open obey within ten seconds, unless
        they were opened with a retention of their own. Raises StoreReadOnlyError, StoreLockedError.
        """
        check_type((Retention, NoneType), "Use a pyrocket.Retention, or None.", retention=retention)
        self._engine.writer.set_retention(retention)

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        read_queues: int = DEFAULT_QUEUES,
        write_queues: int = DEFAULT_QUEUES,
        perm: int = PERM_READ | PERM_WRITE,
        exist_ok: bool = True,
    ) -> TopicConfig:
        """Make a topic; an existing one is returned as it is, or refused without `exist_ok`."""
        topic = TopicConfig(name, read_queues, write_queues, perm)
        return self._admin().create([topic], exist_ok=exist_ok)[0]

    def create_topics(
        self, topics: Iterable[TopicConfig], *, exist_ok: bool = True
    ) -> list[TopicConfig]:
        """Make many topics at once, all or none; thousands cost little more than one.

        Returns them in order, those that exist as they are; without `exist_ok` these are refused
        (InvalidInputError, TOPIC_EXISTS). Raises TopicNameError.

            store.create_topics([TopicConfig(name, 4, 4) for name in ("orders", "bills")])
        """
        check_type(Iterable, "Use a list of pyrocket.TopicConfig.", topics=topics)
        return self._admin().create(list(topics), exist_ok=exist_ok)

    def update_topic(
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
    ) -> TopicConfig:
        """Change what is given. Another number of write queues moves sharding keys."""
        return self._admin().update(name, read_queues, write_queues, perm)

    def delete_topic(self, name: str) -> None:
        """Remove a topic, its queues and all groups' offsets in it.

        Its messages stay in the log until that is cleaned. A new topic of the same name continues
        the old queue offsets and has another `topic_id`.
        """
        self._admin().delete(name)

    def _admin(self) -> TopicAdmin:
        return TopicAdmin(self._engine)

    @lazy_property
    def groups(self) -> Groups:
        """Consumer groups and their offsets: commit, query, reset, delete."""
        return Groups(self._engine)

    @property
    def sink(self) -> Sink:
        """Batches that become visible whole, once: stage, publish, discard."""
        return self._services.sink

    @lazy_property
    def views(self) -> Views:
        """What is there besides the messages of topics: the log, retries, groups and topics."""
        return Views(self._reader, self.groups, self._pending)

    # What is due

    @property
    def timers(self) -> Timers:
        """Messages that wait for due times of their own: count, look, cancel."""
        return self._services.timers

    @property
    def transactions(self) -> Transactions:
        """Half messages: decide and look; a `TransactionProducer` sends them."""
        return self._services.transactions

    def run_services(self) -> ServiceThread:
        """Start a thread that delivers on time what is due; it ends with its `stop`, or the store.

        Without one delayed messages are delivered by whoever writes next, from any process.
        """
        return self._services.runner.start()

    def advance(self) -> bool:
        """Deliver what is due, as far as that goes in half a second; return whether any was.

        A store that is open for reading is opened for writing for that, at most once a second;
        where that cannot be, nothing happens.
        """
        if not self._engine.read_only:
            return self._services.runner.drain(self._engine.writer) > 0
        return self._advancing.advance(
            lambda: Store.open(self.path, config=StoreConfig(lock_timeout_ms=0), clock=self._clock)
        )

    # Writing

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
        """Append all rows, visible together, or none; `topic` wins over the column.

        With `whole` they are durable when this returns, and a loss of power leaves all or none.

        Columns: `pyrocket.SEND_COLUMNS`. Rows without queue id and sharding key are spread over
        the write queues, beginning with `first_queue`. Raises SchemaError, and MessageError naming
        the row (counted from 0).
        """
        return self._services.sender.append_batch(batch, topic, first_queue, whole=whole)

    def flush(self) -> None:
        """Return when everything appended before, by anybody, is durable."""
        self._engine.writer.flush()

    def clean(
        self, *, hours: float | None = None, total_bytes: int | None = None, dry_run: bool = False
    ) -> CleanReport:
        """Remove the oldest log files, by age or down to a size, without limits by `retention`.

        Files with delayed messages still to be delivered stay, and all behind them; the report
        names them. Rows that were staged for a sink a week ago go, too. With `dry_run`, for which
        reading is enough, nothing goes. Raises OptionError.
        """
        check_limits(hours, total_bytes)
        if dry_run:
            known = self.config
            known = replace(known, retention=known.retention or self.retention)
            staged = self.sink.clean_staging(dry_run=True)
            report = preview(
                self._layout,
                known,
                self._clock,
                self._services.hooks,
                hours=hours,
                total_bytes=total_bytes,
            )
        else:
            writer = self._engine.writer
            # First: what the writer finds of that it removes, too, but does not count.
            staged = self.sink.clean_staging()
            report = writer.clean(hours=hours, total_bytes=total_bytes)
        return replace(report, staged_files=staged.files, staged_bytes=staged.bytes)

    def snapshot(
        self, target: str | PathLike[str], progress: Progress | None = None
    ) -> SnapshotReport:
        """Copy the store, in use or not, to `target`, which is missing or empty.

        `progress` is told bytes done, bytes in all, and the file that was copied.
        """
        turn = None if self._engine.read_only else self._engine.writer.exclusive
        where = path_of(target, "target", "SNAPSHOT_TARGET")
        return take_snapshot(self._layout, self._reader, where, turn, progress)
