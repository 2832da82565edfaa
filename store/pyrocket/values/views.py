"""The parts of the views of a store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


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
