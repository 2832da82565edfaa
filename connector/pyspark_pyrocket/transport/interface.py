"""The interface of a transport: the place where messages are stored.

These rules hold for every transport, over a network as well as for a directory:

- Each call has a deadline: that of its target, or another one that a source sets by `within`. A
  transport over a network raises TransportError for a call that misses it or whose connection has
  failed.
- One call covers all queues, so that it costs at most one round trip per broker.
- The queues of a source may be spread over several brokers, each with a store of its own. What only
  makes sense in one store (`BrokerSource`) is requested from each broker: `by_broker`.
- `version`, `now_ms` and `deliver_due` answer from memory if a call would cost a round trip: Spark
  requests the latest offset 85 times a second while a query is idle.
- A read of `slices` can be closed early, and resumed at any offset by another call.
- `TransportError.repeat_is_safe` is true if the same call can be repeated: always for reads, and
  for writes that have an id (`append` with `repeat_id`, `publish`) or are idempotent (`prepare`,
  `flush`, `discard`, `commit`).
- `Target.capabilities` lists what the transport supports. The driver rejects an option that needs
  another capability before it opens anything (`require`).
- A Target is pickled into tasks, and printed in plans and logs. It contains no secrets, only the
  place where a task finds them.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Protocol

import pyarrow as pa
from pyrocket import (
    AppendResult,
    BrokerCalls,
    MessageFilter,
    MessageLocations,
    MessageQueue,
    PendingRange,
    Published,
    QueueOffsets,
    QueueRange,
    RecordSlice,
    Retention,
    ScanTally,
    SinkBatch,
    SourceCalls,
    Staged,
    Stager,
    StoreConfig,
    TopicConfig,
    ViewPart,
)
from pyrocket.errors import OptionError, StoreNotSharedError

Bounds = Mapping[MessageQueue, QueueOffsets]
"""Queue → the range of offsets that can be read."""

PlannedPart = PendingRange | ViewPart
"""A part of a view that one task can read."""


class Capability(str, Enum):
    """A feature that a transport may lack; the value names it in errors and in brokers' replies."""

    LOOKUP = "look-ups by key or id"
    VIEWS = "views"
    GROUPS = "offsets of consumer groups"
    EXACTLY_ONCE = "exactly-once writes"
    CREATE = "creating topics"


NEEDS = {
    "keys": Capability.LOOKUP,
    "msgId": Capability.LOOKUP,
    "badRecordsTopic": Capability.EXACTLY_ONCE,
    "view": Capability.VIEWS,
    "onDamage": Capability.VIEWS,
    "group": Capability.GROUPS,
    "commitToGroup": Capability.GROUPS,
    "createIfMissing": Capability.CREATE,
}
"""Option → the capability without which a transport refuses it."""


class Target(Protocol):
    """The place where messages are stored: frozen, small, pickled into partitions and writers."""

    @property
    def capabilities(self) -> Collection[Capability]:
        """What this transport supports."""

    @property
    def store_id(self) -> str | None:
        """The uuid of the only store that this target opens; empty if that store has none.

        None on the driver, where a target opens any store.
        """

    @property
    def broker(self) -> str:
        """The name of the only broker that this target opens; empty if it opens any."""

    @property
    def options(self) -> Mapping[str, str]:
        """The options of a read that name this target, without secrets."""

    @property
    def directory(self) -> str | None:
        """The store's directory, absolute; None if the store is not a directory here."""

    def describe(self) -> str:
        """Return the name of the place in errors and log lines."""

    def of_store(self, store_id: str | None) -> "Target":
        """Return the target that opens only this store; with None, any store."""

    def of_broker(self, name: str, earlier: str = "") -> "BrokerTarget":
        """Return the target of one broker.

        Of several brokers, it is `name`, or `earlier` without a name, or the first by name without
        both. The target of a single broker opens only `name` then, if given. Raises TransportError
        if the broker cannot be found.
        """

    def waiting(self) -> "Target":
        """Return the target of a query that has reached the store before.

        If a new process cannot reach a server, this target waits until the deadline of the call,
        because the server may be restarting. Otherwise a wrong address is reported soon.
        """

    def open_source(self) -> "MessageSource":
        """Return the source that this process keeps open for all callers.

        Raises StoreNotFoundError; with a `store_id`, StoreNotSharedError if the store is missing
        or a different one.
        """

    def find_source(self) -> "MessageSource | None":
        """Return the result of `open_source`, or None if the store does not exist."""

    def close_source(self) -> None:
        """Close the source that this process keeps open, if any."""

    def open_own_source(self) -> "MessageSource":
        """Open a source, which the caller closes. Raises the same errors as `open_source`."""

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "MessageSink":
        """Open a sink, which the caller closes.

        Args:
            config: The settings of the writer: `auto_create_topics`, `flush` and
                `timer_max_delay_ms`; for a new store also `dir_mode` and `retention`.
            create: Whether a missing store is created.
            staging: Whether the sink only stages and discards, which needs no write lock.

        Raises the same errors as `open_source`, and StoreLockedError.
        """

    def not_shared(self, reason: str) -> StoreNotSharedError:
        """Return the error for a task that does not find the driver's store."""


class BrokerTarget(Target, Protocol):
    """The store of one broker, from which tasks read and to which sinks write."""

    def of_store(self, store_id: str | None) -> "BrokerTarget":
        """Return the target that opens only this store; with None, any store."""

    def waiting(self) -> "BrokerTarget":
        """Return the target of a query that has reached the store before."""

    def open_source(self) -> "BrokerSource":
        """Return the source that this process keeps open for all callers."""

    def open_reader(self, ranges: Sequence[QueueRange]) -> "BrokerSource":
        """Return `open_source()`, or the source of a replica that has all messages of ranges."""


class MessageSource(SourceCalls, Protocol):
    """Reads the queues of one broker or of several, and commits for consumer groups."""

    @property
    def target(self) -> Target:
        """The target of this source; that of one broker opens only the store of this source."""

    def within(self, seconds: float, *, lock: float | None = None) -> "MessageSource":
        """Return a source of the same stores whose calls have this deadline.

        Args:
            seconds: The deadline of each call.
            lock: The longest wait for the write lock of a directory, by default `seconds`. A broker
                waits for the lock of its store itself.
        """

    def by_broker(self, expected: Collection[str] = ()) -> Mapping[str, "BrokerSource"]:
        """Return the source of each broker by name; the source of one broker returns itself.

        The source of several brokers waits until the `expected` ones can be found, and includes
        them from then on. Raises TransportError for one that cannot be found.
        """

    def version(self) -> Hashable:
        """Return a value that equals an earlier one if nothing has changed since.

        The call needs no round trip: a transport over a network is notified of changes.
        """

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Return True when the version differs from `version`, or False after `seconds`.

        Returns False immediately if the transport is not notified of changes.
        """


class BrokerSource(MessageSource, BrokerCalls, Protocol):
    """Reads the store of one broker."""

    @property
    def target(self) -> BrokerTarget:
        """The target for the tasks: it opens only the store of this source."""

    def within(self, seconds: float, *, lock: float | None = None) -> "BrokerSource":
        """Return a source of the same store whose calls have this deadline."""

    def slices(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages that match `where` as raw records, range after range.

        `tally` counts the examined messages, so that a reader can resume after an error. A slice
        is valid until the next one is requested. Raises OffsetOutOfRangeError if messages were
        deleted, and RecordDamagedError.
        """

    def joined_slice(
        self,
        ranges: Sequence[QueueRange],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> RecordSlice | None:
        """Return small ranges of one topic as one slice with an `order`.

        Returns None if they are too large together, or if one of them has to be read alone to
        determine what is wrong with it.
        """

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages at these locations that match `where`. Raises as `slices` does."""

    def read_view(
        self,
        part: PlannedPart,
        columns: Sequence[str],
        *,
        topics: Sequence[str] = (),
        verify_crc: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; of pending messages, only those for `topics`, if any."""


class MessageSink(Protocol):
    """Writes to a transport. Belongs to one thread."""

    @property
    def store_id(self) -> str:
        """The uuid of the store, known since the sink was opened."""

    @property
    def retention(self) -> Retention | None:
        """How long messages are kept, as of opening the sink; None means forever."""

    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic; with `create`, a missing one is created. Raises TopicNotFoundError."""

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        repeat_id: str = "",
    ) -> AppendResult:
        """Append all rows, or none.

        Args:
            batch: Columns of `pyrocket.SEND_COLUMNS`.
            topic: The topic of all rows; None if the column `topic` names each row's topic.
            first_queue: The queue of the first row that has neither a queue nor a sharding key; the
                other such rows use the next queues in turn. None: a random queue.
            repeat_id: Identifies the append: a second one with the same id appends nothing and
                returns the first result. If empty, every call appends. A sink without exactly-once
                writes appends again, with the same message ids.
        """

    def flush(self) -> None:
        """Flush everything appended before; it is durable on return."""

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> Stager:
        """Return the stager for the rows of one task."""

    def publish(
        self,
        batch: SinkBatch,
        staged: Sequence[Staged],
        *,
        anonymous: bool = False,
        on_difference: str = "fail",
        on_gap: str = "fail",
    ) -> Published:
        """Make staged rows visible, all together and durably; a repeat changes nothing.

        Args:
            batch: The identity by which a repeat is recognised.
            staged: The staged rows of the tasks, in this order.
            anonymous: Whether the identity was created for this write, so that only this sink can
                repeat it. Otherwise the store saves it for later runs.
            on_difference: For a repeat with other rows: `fail`, `drop` or `publish`.
            on_gap: If earlier batches are missing in the store: `fail` or `accept`.

        Raises SinkError; then no row is visible.
        """

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove staged rows that will not be published."""

    def close(self, *, clean: bool = True) -> None:
        """Close the sink; with `clean`, the last writer shuts the store down cleanly."""


def require(target: Target, needed: Mapping[Capability, str]) -> None:
    """Raise OptionError (OPTION_UNSUPPORTED) if the transport lacks a capability.

    `needed` maps each capability to the option that needs it.
    """
    for capability, option in needed.items():
        if capability not in target.capabilities:
            raise OptionError(
                f"Option {option!r} is not supported by {target.describe()}: it has no "
                f"{capability.value}.",
                remedy=f"Remove {option!r}, or read from a target that supports it.",
                code="OPTION_UNSUPPORTED",
            )
