"""What the connector asks of the place where messages are.

The rules for every transport, so that one that goes over a network fits, too:

- Every call ends within the deadline of its source, which `within` sets, or its sink. A transport
  over a network raises TransportError from a call that is late or has failed on its way.
- Calls take all queues at once: one call is one round trip at most.
- `version` answers from memory, so that an idle query asks nothing.
- `slices` may be closed early, and resumed at any offset by another call.
- `TransportError.repeat_is_safe` says whether the same call can be made again. Reads always can;
  `append` and `publish` can where they carry an id.
- `Target.capabilities` says what a transport can do, so that the driver refuses an option that it
  cannot serve before anything is opened (`require`).
- A Target is pickled into tasks, plans and logs: it holds no secret, only where one is found.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

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
    Stager,
    StoreConfig,
    TopicConfig,
    ViewPart,
)
from pyrocket.errors import OptionError, StoreUnavailableError

Bounds = Mapping[MessageQueue, QueueOffsets]
"""The readable range of each queue."""

Part = PendingRange | ViewPart
"""Some rows of a view, read by one task."""


class Capability(str, Enum):
    """What a transport may lack, named as in errors."""

    LOOKUP = "look-ups by key or id"
    VIEWS = "views"
    GROUPS = "offsets of consumer groups"
    EXACTLY_ONCE = "exactly-once writes"
    CREATE = "creating topics"


class TransportError(StoreUnavailableError):
    """A call that has failed on its way or has missed its deadline.

    Transports over a network raise it; a store's directory has calls of neither kind.

    Attributes:
        repeat_is_safe: Whether the same call can be made again; if not, it may have been carried
            out.
    """

    default_code = "TRANSPORT_FAILED"

    def __init__(
        self, message: str, *, repeat_is_safe: bool, remedy: str = "", code: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, code=code)
        self.repeat_is_safe = repeat_is_safe

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling: Spark carries exceptions between processes."""
        rebuild = partial(
            type(self), repeat_is_safe=self.repeat_is_safe, remedy=self.remedy, code=self.code
        )
        return (rebuild, (self.message,))


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


class Target(Protocol):
    """Where messages are: frozen, small, and pickled into partitions and writers."""

    @property
    def capabilities(self) -> Collection[Capability]:
        """What this transport can do."""
        ...

    def describe(self) -> str:
        """Return the place as errors and log lines name it."""
        ...

    def open_source(self) -> "MessageSource":
        """Return the reading side, which is kept open for the next caller in this process.

        Raises StoreNotFoundError; StoreNotSharedError in a task that finds another store than the
        driver.
        """
        ...

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "MessageSink":
        """Open the writing side, for this caller alone; with `staging` only to stage and discard.

        Raises as `open_source`, and StoreLockedError.
        """
        ...


class MessageSource(Protocol):
    """The reading side of a transport. Safe to share between threads."""

    @property
    def target(self) -> Target:
        """The target that tasks open: it names the store that was found."""
        ...

    def within(self, seconds: float) -> "MessageSource":
        """Return this source with another deadline for each of its calls."""
        ...

    def identities(self) -> Mapping[str, SourceIdentity]:
        """Return by broker what offsets count in now, without marks."""
        ...

    def now_ms(self) -> int:
        """Return the time of the source, epoch milliseconds."""
        ...

    def version(self) -> Hashable:
        """Return from memory a value that stays equal as long as nothing has changed."""
        ...

    def is_recovering(self) -> bool:
        """Whether a recovery was interrupted; until the next one, queues end where durable."""
        ...

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""
        ...

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which names the nearest."""
        ...

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics, in their order."""
        ...

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of these queues, also of those that no topic has any more.

        Of a queue that is deleted it is where the queue ended, twice; 0 where that is unknown.
        """
        ...

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the queues that hold messages and are no read queues of these topics any more."""
        ...

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time; else its end."""
        ...

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the queues that recoveries after these epochs, by broker, have cut, and where."""
        ...

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets; None if there is none."""
        ...

    def holds(self, mark: LogMark) -> bool | None:
        """Whether the log still has the marked message; None if that cannot be known."""
        ...

    def sizes(self, ranges: Sequence["QueueRange"]) -> list[ByteSpan]:
        """Return where each range lies and about how many bytes it has; may be estimates."""
        ...

    def split_at_bytes(
        self, splits: Sequence[tuple["QueueRange", Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Return for each range and each of its ascending marks, in bytes, how far messages reach.

        That is the offset up to which the messages from the range's start have no more bytes than
        the mark, and how many they have.
        """
        ...

    def slices(
        self,
        ranges: Sequence["QueueRange"],
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages of the ranges that `where` wants as raw records, range after range.

        Small ranges of one topic may come in one slice. `tally` counts how far it has come. Raises
        OffsetOutOfRangeError where messages are gone, RecordDamagedError.
        """
        ...

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return where the messages with some keys or ids are."""
        ...

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages at these locations that `where` wants; raises as `slices`."""
        ...

    def plan_view(
        self, view: str, *, topics: Sequence[str] = (), group: str = "", skips_damage: bool = False
    ) -> Sequence[Part]:
        """Return the parts of a view as it is now."""
        ...

    def read_view(
        self, part: Part, columns: Sequence[str], *, topics: Sequence[str] = (), verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; of pending messages those for `topics`, if any are named."""
        ...

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return what a group has committed, in these topics or in all."""
        ...

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit offsets of a group durably, and return all it has in these topics then.

        A group that does not exist is created; without offsets that is all. A smaller offset than
        the committed one counts only with `backwards`. Topics and queues that no longer exist are
        left out, and in a queue that was cut the offset is at most its end.
        """
        ...

    def deliver_due(self) -> bool:
        """Deliver delayed messages that are due where no server does it; return whether any was."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class MessageSink(Protocol):
    """The writing side of a transport."""

    @property
    def store_id(self) -> str:
        """The uuid of the store that is written to."""
        ...

    @property
    def retention(self) -> Retention | None:
        """How long messages are kept; None: for ever."""
        ...

    def prepare(self, topic: str, *, create: bool = True, queues: int | None = None) -> TopicConfig:
        """Return the topic, created if it is missing and `create`. Raises TopicNotFoundError."""
        ...

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        topic: str | None = None,
        first_queue: int | None = None,
        repeat_id: str = "",
    ) -> AppendResult:
        """Append all rows, or none.

        The same `repeat_id` again returns the first result and appends nothing.
        """
        ...

    def flush(self) -> None:
        """Return when everything appended before is durable."""
        ...

    def stage(self, batch: SinkBatch, *, partition: int, attempt: int) -> Stager:
        """Return what stages the rows of one task."""
        ...

    def publish(
        self,
        batch: SinkBatch | None,
        staged: Sequence[Staged],
        *,
        on_difference: str = "fail",
        on_gap: str = "fail",
    ) -> Published:
        """Make staged rows visible, all together and durably.

        The identity of `batch` makes a repeat harmless; without one (None) rows come twice.
        """
        ...

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove staged rows that are not published."""
        ...

    def close(self, *, clean: bool = True) -> None:
        """Close; with `clean` the last writer ends the store cleanly."""
        ...


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


def require(target: Target, needed: Mapping[Capability, str]) -> None:
    """Raise OptionError (OPTION_UNSUPPORTED) unless the transport can do what options need.

    `needed` names the option by what it needs.
    """
    for capability, option in needed.items():
        if capability not in target.capabilities:
            raise OptionError(
                f"Option {option!r} is not supported by {target.describe()}: it has no "
                f"{capability.value}.",
                remedy=f"Remove {option!r}, or read from a target that supports it.",
                code="OPTION_UNSUPPORTED",
            )
