"""The calls of a source of messages: of a store in a directory, or over a network; and its answers.

Each call takes all queues at once, so that it costs at most one round trip per broker.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pyrocket.values.admin import PERM_READ, PERM_WRITE, TopicConfig
from pyrocket.values.lookup import LookupRequest, LookupResult
from pyrocket.values.message import (
    ByteSpan,
    LogMark,
    MessageQueue,
    QueueOffsets,
    QueueRange,
    SourceIdentity,
)


@dataclass(frozen=True, order=True)
class PendingRange:
    """Pending messages of one system queue: all messages in [start, end), or only those at
    `offsets`.

    `offsets` are int64 in native byte order, ascending.
    """

    topic: str
    queue_id: int
    start: int
    end: int
    offsets: bytes = b""

    @property
    def messages(self) -> int:
        """The number of messages for all topics."""
        return len(self.offsets) // 8 or self.end - self.start


ViewName = Literal["commitlog", "retry", "dlq", "groups", "topics"]


@dataclass(frozen=True)
class LogPart:
    """Whole files of the log: the records in [start, end).

    With `is_whole` there must be records up to `end`; otherwise zeros may follow the last record.
    If `topics` is not empty, only records of these topics are read. With `skips_damage`, corrupt
    records are skipped and logged.
    """

    start: int
    end: int
    is_whole: bool
    topics: tuple[str, ...] = ()
    skips_damage: bool = False

    @property
    def weight(self) -> int:
        """The approximate number of log bytes that are read."""
        return self.end - self.start


@dataclass(frozen=True)
class RetryPart:
    """Messages [start, end) of a queue of a group's retry or dead-letter topic.

    committed: the offset that the group consumes next; 0 without a committed offset.
    """

    topic: str
    group: str
    queue_id: int
    start: int
    end: int
    committed: int
    weight: int


@dataclass(frozen=True)
class PendingRetryPart:
    """Messages that will be delivered to retry topics; `groups` maps each topic to its group."""

    pending: PendingRange
    groups: Mapping[str, str]

    @property
    def weight(self) -> int:
        """The approximate number of log bytes that are read."""
        return self.pending.messages * 512


@dataclass(frozen=True)
class TablePart:
    """The rows of the view "groups" (all groups or one) or "topics" (all topics or some)."""

    view: Literal["groups", "topics"]
    group: str = ""
    topics: tuple[str, ...] = ()
    weight: int = 0


ViewPart = LogPart | RetryPart | PendingRetryPart | TablePart


Part = PendingRange | ViewPart
"""Some rows of a view."""


@dataclass(frozen=True)
class ReadPlan:
    """What the planning of a micro-batch reads of a store, at one moment.

    Attributes:
        broker, store, epoch: The name of the broker, and the identity of its store.
        run: Identifies the process of a broker. While it runs, the log only grows. Empty if the
            log of the store may be replaced at any time.
        topics: All topics.
        bounds: The ranges of the read queues of the requested topics that exist.
    """

    broker: str
    store: str
    epoch: int
    run: str
    topics: Sequence[TopicConfig]
    bounds: Mapping[MessageQueue, QueueOffsets]

    @property
    def identities(self) -> dict[str, SourceIdentity]:
        """The identity of the store by broker name."""
        return {self.broker: SourceIdentity(store=self.store, epoch=self.epoch)}


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The broker's answer to a client's first call; see `HelloReply` in `pyrocket.proto`."""

    release: str
    protocol: int
    store: str
    broker: str
    epoch: int
    is_recovering: bool
    now_ms: int
    log_file_bytes: int
    delay_levels: str
    default_queues: int
    auto_create_topics: bool
    max_message_bytes: int
    timer_max_delay_ms: int
    max_request_bytes: int
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class Version:
    """The version of a store: at least one field changes whenever the store changes."""

    published: int
    dispatched: int
    structure: int
    epoch: int
    is_recovering: bool


@dataclass(frozen=True)
class ReplicaState:
    """A replica, as its primary sees it; on a replica, the replica itself.

    Attributes:
        end: The log offset up to which its log is durable.
        lag_bytes: What its log lacks.
        lag_ms: The age of the oldest message that it lacks.
    """

    name: str
    connected: bool
    end: int
    lag_bytes: int
    lag_ms: int


@dataclass(frozen=True)
class RunningState:
    """The offsets of the log, and the reasons why the broker rejects appends.

    An append writes to the log and the queues; after an error in either, all writes are rejected.
    Source: `RunningFlags`.

    Attributes:
        write_error: A write or fsync has failed; the store can only be read.
        disk_full: Appends of messages are refused with DISK_FULL.
        replicas: The replicas of a broker; on a replica, only itself.
        primary: The address of a replica's primary; empty for other brokers.
        term: The number of promotions in the history of the store.
        sync: The status of sends that wait for a replica; empty if they do not.
    """

    published: int
    flushed: int
    dispatched: int
    write_error: bool
    disk_full: bool
    replicas: Sequence[ReplicaState] = ()
    primary: str = ""
    term: int = 0
    sync: str = ""

    @property
    def is_writable(self) -> bool:
        """Whether appends are accepted."""
        return not (self.write_error or self.disk_full or self.primary)

    @property
    def permission(self) -> int:
        """RocketMQ's permission of the broker: 6 to read and write, 4 to read; 6 for replicas."""
        return PERM_READ | (0 if self.trouble else PERM_WRITE)

    @property
    def trouble(self) -> str:
        """The reasons why appends are rejected; empty if they are accepted."""
        reasons = {"a write or fsync failed": self.write_error, "the disk is full": self.disk_full}
        return ", ".join(text for text, holds in reasons.items() if holds)


class SourceCalls(Protocol):
    """Reads the queues of one broker or of several, and commits for consumer groups.

    Safe to share between threads. A broker that cannot be reached is an error that names it, and
    never looks like missing queues.
    """

    def identities(self) -> Mapping[str, SourceIdentity]:
        """Return, by broker, the store in which offsets are valid now, without a mark."""

    def now_ms(self) -> int:
        """Return the store's time in epoch milliseconds, without a round trip."""

    def is_recovering(self) -> bool:
        """Return whether a recovery was interrupted.

        Until the next recovery, queues end after the last message that is known to be durable.
        """

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which names the nearest topic."""

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics, in the order of the topics."""

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of any queues, including those of deleted topics.

        The range of a deleted queue is empty, at its last end or at 0 if that is unknown.
        """

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of former read queues of these topics that still hold messages."""

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time, or the queue's end.

        Times are in epoch milliseconds.
        """

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the queues that recoveries have truncated since these epochs, and their new ends.

        `epochs` are by broker; queues of other brokers are ignored.
        """

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return the place and size of each range in the log; both may be estimates."""

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Split ranges by size: return an (offset, bytes) pair for each mark of each range.

        Marks are in bytes, ascending. `bytes` is the exact size of the messages from the range's
        start up to the offset; it is at most the mark.
        """

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group in these topics, by default in all topics."""

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit offsets of a group durably; return its committed offsets in these topics.

        A missing group is created, even without offsets. An offset below the committed one is
        ignored unless `backwards`. Topics and queues that no longer exist are skipped; in a queue
        that was truncated, at most the end is committed.
        """

    def deliver_due(self) -> bool:
        """Deliver delayed messages that are due; return whether there were any.

        A transport whose server delivers them returns False without a round trip.
        """

    def close(self) -> None:
        """Release files and connections."""


class BrokerCalls(SourceCalls, Protocol):
    """Reads the store of one broker: the calls with one reply."""

    def plan(self, topics: Collection[str]) -> ReadPlan:
        """Return what the planning of a micro-batch reads, at one moment.

        The bounds may lack some of the topics, which are then requested by `bounds`.
        """

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets; None if there is none."""

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log still has the marked message; None if that is unknown."""

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of the messages with some keys or ids."""

    def plan_view(
        self, view: str, *, topics: Sequence[str] = (), group: str = "", skips_damage: bool = False
    ) -> Sequence[Part]:
        """Return the parts of a view in its current state."""
