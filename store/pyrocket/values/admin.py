"""What an administrator sees: topics, groups, their lag and members; reports of cleanings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
"""On disk: never renumber."""


@dataclass(frozen=True)
class TopicConfig:
    """One topic. Readers use `read_queues`, senders `write_queues`.

    ordered: whether producers choose the queue of a sharding key from the queues of all brokers,
        also of brokers that are gone: then a key never moves to another queue.
    topic_id: unique for each topic that is created; empty for a topic created by a broker.
    """

    name: str
    read_queues: int
    write_queues: int
    perm: int = PERM_READ | PERM_WRITE
    ordered: bool = False
    topic_id: str = ""

    @property
    def readable(self) -> bool:
        """Whether its messages may be read."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether messages may be sent to it."""
        return bool(self.perm & PERM_WRITE)


_MINUTE = 60_000
DELAYS_MS = (
    *(10_000, 30_000, *(n * _MINUTE for n in range(1, 11))),
    *(20 * _MINUTE, 30 * _MINUTE, 60 * _MINUTE, 120 * _MINUTE),
)


@dataclass(frozen=True)
class Backoff:
    """How long a message waits after a failed delivery: RocketMQ 5's `groupRetryPolicy`.

    After delivery n, counted from 0, the message waits for delay n of `delays_ms`, or for the last
    delay. With `initial_ms`, it waits for `initial_ms` times `multiplier` to the power of n, at
    most `max_ms`. Source: `CustomizedRetryPolicy`, `ExponentialRetryPolicy`.
    """

    delays_ms: tuple[int, ...] = DELAYS_MS
    initial_ms: int = 0
    max_ms: int = 0
    multiplier: int = 2

    def delay_ms(self, failed_before: int) -> int:
        """Return the delay after the delivery that follows `failed_before` failed deliveries."""
        if self.initial_ms:
            steps = min(max(failed_before, 0), 32)
            return min(self.max_ms, self.initial_ms * self.multiplier**steps)
        return self.delays_ms[min(max(failed_before, 0), len(self.delays_ms) - 1)]


@dataclass(frozen=True)
class GroupConfig:
    """One consumer group.

    consume_enabled: whether the group may consume at all. retry_queues: number of queues of its
    retry topic.
    retry_max_times: retries of a message before it is sent to the dead-letter topic.
    fifo: whether messages with the same sharding key are received one after the other.
    backoff: how long failed messages wait.
    """

    name: str
    consume_enabled: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    fifo: bool = False
    backoff: Backoff = Backoff()

    @property
    def max_attempts(self) -> int:
        """Number of deliveries of a message before it is sent to the dead-letter topic."""
        return max(self.retry_max_times, 0) + 1


@dataclass(frozen=True)
class AtTime:
    """A position in a queue: the first message stored at or after epoch milliseconds `ms`."""

    ms: int


ResetTo = Mapping[int, int] | Literal["earliest", "latest"] | AtTime
"""The target of a reset: an offset for each queue, or one rule for all queues."""


@dataclass(frozen=True)
class GroupLag:
    """The lag of a group in one queue, whose messages have the offsets [minimum, maximum).

    Attributes:
        group: The consumer group.
        topic: The topic; `%RETRY%` and the group's name for messages whose consumption failed.
        queue_id: The queue.
        committed: The next offset to consume; None before the first commit.
        minimum: The first offset of the queue.
        maximum: The next offset of the queue.
        delay_ms: The time since the first message that is not consumed was stored; 0 if all are.
        first: The offset at which the group starts if it has committed none.
    """

    group: str
    topic: str
    queue_id: int
    committed: int | None
    minimum: int
    maximum: int
    delay_ms: int = 0
    first: int = 0

    @property
    def start(self) -> int:
        """The offset of the first message that is not consumed; `maximum` if all are."""
        at = self.first if self.committed is None else self.committed
        return min(max(at, self.minimum), self.maximum)

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed."""
        return self.maximum - self.start

    @property
    def lost(self) -> int:
        """The number of messages that were deleted before they were consumed."""
        return 0 if self.committed is None else max(self.minimum - self.committed, 0)

    @property
    def beyond_end(self) -> int:
        """How far `committed` exceeds the queue's end: above 0 only after a crash or a restore."""
        return max((self.committed or 0) - self.maximum, 0)


@dataclass(frozen=True)
class LiveMember:
    """A live member of a group.

    differs: Whether its subscriptions differ from those in the group's latest heartbeat, which are
        the subscriptions of the group.
    """

    client_id: str
    differs: bool


@dataclass(frozen=True)
class LogFile:
    """A log file, and the time in epoch ms at which the next file was started."""

    start: int
    bytes: int
    closed_ms: int


@dataclass(frozen=True)
class Removal:
    """A file to delete, and the reason."""

    file: LogFile
    reason: str


@dataclass(frozen=True)
class Kept:
    """A file that exceeds the limits, and a description of the records for which it is kept."""

    file: LogFile
    held_by: str


@dataclass(frozen=True)
class CleanReport:
    """The files that a cleaning deleted or, with `dry_run`, would delete.

    kept: files that exceed the limits but are still needed, in log order. staged_files,
    staged_bytes: files with rows that were staged for a sink but not published within a week.
    messages: the number of messages in the deleted log files, without those of services; only a
    manual cleaning counts them. disk_bytes: the log files that any retention deletes at once,
    because the disk is fuller than `force_ratio`; only `dry_run` computes them.
    """

    removals: tuple[Removal, ...] = ()
    queue_files: int = 0
    index_files: int = 0
    dry_run: bool = False
    log_start: int = field(default=0)
    staged_files: int = 0
    staged_bytes: int = 0
    kept: tuple[Kept, ...] = ()
    messages: int = 0
    disk_bytes: int = 0

    def then(self, later: "CleanReport") -> "CleanReport":
        """Return the sums of both reports; the other fields are those of the later report."""
        return replace(
            later,
            removals=self.removals + later.removals,
            queue_files=self.queue_files + later.queue_files,
            index_files=self.index_files + later.index_files,
        )

    @property
    def bytes(self) -> int:
        """Bytes of the deleted log files."""
        return sum(removal.file.bytes for removal in self.removals)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the log files that exceed the limits but are kept."""
        return sum(kept.file.bytes for kept in self.kept)
