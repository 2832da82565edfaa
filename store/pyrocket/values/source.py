"""The answers of a store to its readers: the plan of a micro-batch, its state and version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyrocket.values.message import MessageQueue, QueueOffsets, SourceIdentity
from pyrocket.values.topics import TopicConfig


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


_READ, _WRITE = 4, 2
"""RocketMQ's PermName."""


@dataclass(frozen=True)
class RunningState:
    """The offsets of the log, and the reasons why the broker rejects appends.

    An append writes to the log and the queues; after an error in either, all writes are rejected.
    Source: `RunningFlags`.

    Attributes:
        write_error: A write or fsync has failed; the store can only be read.
        disk_full: Appends of messages are refused with DISK_FULL.
    """

    published: int
    flushed: int
    dispatched: int
    write_error: bool
    disk_full: bool

    @property
    def is_writable(self) -> bool:
        """Whether appends are accepted."""
        return not (self.write_error or self.disk_full)

    @property
    def permission(self) -> int:
        """RocketMQ's permission of the broker: 6 to read and write, 4 to read."""
        return _READ | (_WRITE if self.is_writable else 0)

    @property
    def trouble(self) -> str:
        """The reasons why appends are rejected; empty if they are accepted."""
        reasons = {"a write or fsync failed": self.write_error, "the disk is full": self.disk_full}
        return ", ".join(text for text, holds in reasons.items() if holds)
