"""The calls of a source of messages: of a store in a directory, or over a network.

Each call takes all queues at once, so that it costs at most one round trip per broker.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from pyrocket.broker.source import Part, ReadPlan
from pyrocket.engine.key_lookup import LookupRequest, LookupResult
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.message_locations import MessageLocations
from pyrocket.message import (
    ByteSpan,
    LogMark,
    MessageQueue,
    QueueOffsets,
    QueueRange,
    SourceIdentity,
)
from pyrocket.metadata.topics import TopicConfig


class SourceCalls(Protocol):
    """Reads the queues of one broker or of several, and commits for consumer groups.

    Safe to share between threads. A broker that cannot be reached is an error that names it, and
    never looks like missing queues.
    """

    def identities(self) -> Mapping[str, SourceIdentity]:
        """Return, by broker, the store in which offsets are valid now, without a mark."""
        ...

    def now_ms(self) -> int:
        """Return the store's time in epoch milliseconds, without a round trip."""
        ...

    def is_recovering(self) -> bool:
        """Return whether a recovery was interrupted.

        Until the next recovery, queues end after the last message that is known to be durable.
        """
        ...

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name."""
        ...

    def topic(self, name: str) -> TopicConfig:
        """Return one topic. Raises TopicNotFoundError, which names the nearest topic."""
        ...

    def bounds(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the range of each read queue of the topics, in the order of the topics."""
        ...

    def queue_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of any queues, including those of deleted topics.

        The range of a deleted queue is empty, at its last end or at 0 if that is unknown.
        """
        ...

    def retired(self, topics: Collection[str]) -> dict[MessageQueue, QueueOffsets]:
        """Return the ranges of former read queues of these topics that still hold messages."""
        ...

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time, or the queue's end.

        Times are in epoch milliseconds.
        """
        ...

    def truncations(
        self, epochs: Mapping[str, int], queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Return the queues that recoveries have truncated since these epochs, and their new ends.

        `epochs` are by broker; queues of other brokers are ignored.
        """
        ...

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return the place and size of each range in the log; both may be estimates."""
        ...

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Split ranges by size: return an (offset, bytes) pair for each mark of each range.

        Marks are in bytes, ascending. `bytes` is the exact size of the messages from the range's
        start up to the offset; it is at most the mark.
        """
        ...

    def committed(
        self, group: str, topics: Collection[str] | None = None
    ) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group in these topics, by default in all topics."""
        ...

    def commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, backwards: bool = False
    ) -> dict[MessageQueue, int]:
        """Commit offsets of a group durably; return its committed offsets in these topics.

        A missing group is created, even without offsets. An offset below the committed one is
        ignored unless `backwards`. Topics and queues that no longer exist are skipped; in a queue
        that was truncated, at most the end is committed.
        """
        ...

    def deliver_due(self) -> bool:
        """Deliver delayed messages that are due; return whether there were any.

        A transport whose server delivers them returns False without a round trip.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class BrokerCalls(SourceCalls, Protocol):
    """Reads the store of one broker."""

    def plan(self, topics: Collection[str]) -> ReadPlan:
        """Return what the planning of a micro-batch reads, at one moment.

        The bounds may lack some of the topics, which are then requested by `bounds`.
        """
        ...

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets; None if there is none."""
        ...

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log still has the marked message; None if that is unknown."""
        ...

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
        ...

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
        ...

    def locate(self, request: LookupRequest) -> LookupResult:
        """Return the locations of the messages with some keys or ids."""
        ...

    def slices_at(
        self,
        locations: MessageLocations,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages at these locations that match `where`. Raises as `slices` does."""
        ...

    def plan_view(
        self, view: str, *, topics: Sequence[str] = (), group: str = "", skips_damage: bool = False
    ) -> Sequence[Part]:
        """Return the parts of a view in its current state."""
        ...

    def read_view(
        self, part: Part, columns: Sequence[str], *, topics: Sequence[str] = (), verify_crc: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part; of pending messages, only those for `topics`, if any."""
        ...
