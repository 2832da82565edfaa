"""The log and the queues of an open store, and their reader, which neither locks nor writes.

The shared state has the offsets up to which the log and the queues may be read. A directory without
a valid shared state (written by a broker, copied, or not opened for writing since the last boot) is
read up to the end of its queues.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from pyrocket.base.arguments import check_numbers, check_place
from pyrocket.base.clock import Clock
from pyrocket.base.config import StoreConfig
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.io import read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import is_locked
from pyrocket.disk.shared_state import NEXT_DUE, SharedState, lock_identity
from pyrocket.errors import (
    InvalidInputError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    StoreDamagedError,
    StoreUnavailableError,
)
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_crc import check_crcs
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.consume_queue import ConsumeQueue, QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.offsets import (
    cut_by_bytes,
    log_offsets_at,
    offset_by_time,
    span_of,
    store_time,
)
from pyrocket.index.queues.scanner import Scanner, read_messages, slice_of_runs, slices_at
from pyrocket.log.commit_log import CommitLog
from pyrocket.metadata.identity import Identity, SealedLog, load_identity
from pyrocket.metadata.queue_ends import QueueEnds, Shortfall
from pyrocket.metadata.topics import Topics
from pyrocket.values.admin import TopicConfig
from pyrocket.values.lookup import MessageLocations
from pyrocket.values.message import ByteSpan, Position, QueueOffsets, StoredMessage


class StoreFiles:
    """Shared by the reader, the writer and the services of one open store, and by its threads."""

    def __init__(
        self, layout: Layout, config: StoreConfig, section: Callable[[], int] | None = None
    ) -> None:
        """`section` numbers the exclusive sections of a writer, 0 outside; None for reading."""
        writable, number = section is not None, section or (lambda: 0)
        queue_bytes = config.queue_file_bytes
        run = FileQueue(
            *(layout.commit_log, config.log_file_bytes, layout.scratch),
            writable=writable,
            section=number,
        )
        self.log = CommitLog(run, SealedLog(layout))
        self.queues = QueueTable(layout, queue_bytes, writable=writable, section=number)

    def close(self) -> None:
        """Close all open files; they are opened again when they are used."""
        self.queues.close()
        self.log.run.close()


_PULL_MESSAGES, _PULL_BYTES = 1024, 4 << 20
"""Maximum number of messages, and of bytes, in memory at a time; a larger message is read alone."""

_log = logging.getLogger(__name__)


class Reader:
    """Reads one directory. Safe to share between threads and across forks.

    A read waits for a recovery up to `recovery_seconds`, and polls every `poll_seconds`. `log` may
    continue after the readable end; see `log_end`.
    """

    recovery_seconds, poll_seconds = 60.0, 0.02

    def __init__(
        self, layout: Layout, identity: Identity, clock: Clock, files: StoreFiles, topics: Topics
    ) -> None:
        self._layout, self.identity, self.clock = layout, identity, clock
        self.files, self.log, self._queues = files, files.log, files.queues
        self.topics = topics
        self._state: SharedState | None = None
        self._shortfall = Shortfall(layout)
        self._durable_end: int | None = None
        self._structure = -1
        self._minima: dict[tuple[str, int], tuple[tuple[int, ...], int]] = {}

    @cached_property
    def _scanner(self) -> Scanner:
        return Scanner(self.log, self.identity.config.broker_name, self._wait_for_recovery)

    def position(self) -> Position:
        """Return the shared state's position; without a valid state, one derived from files."""
        return self._saved_position() or _derived_position(self._queues, self._layout)

    def cursors(self) -> dict[int, int]:
        """Return the services' cursors by index in the shared state; empty if it is invalid."""
        state = self._valid_state()
        return {} if state is None else state.cursors()

    def next_due(self) -> int | None:
        """Return when the next service is due, in epoch ms; None without a valid shared state."""
        state = self._valid_state()
        return None if state is None else state[NEXT_DUE]

    def _saved_position(self) -> Position | None:
        """Return the position of the shared state or of an interrupted recovery, if any."""
        state = self._valid_state()
        if state is None:
            end = self.interrupted_end()
            return Position(end, end, hash("an interrupted recovery")) if end else None
        position = state.position()
        if position.structure != self._structure:
            # Files may have been deleted, and new files created with the same names.
            self._queues.close()
            self._structure = position.structure
        return position

    def offsets(self, topic: TopicConfig) -> dict[int, QueueOffsets]:
        """Return the offset range of each read queue."""
        bound, start = self.bound(), self.log.first_offset()
        return {
            queue_id: self._range(topic.name, queue_id, bound, start)
            for queue_id in range(topic.read_queues)
        }

    def queue_offsets(self, topic: TopicConfig, queue_id: int) -> QueueOffsets:
        """Return the offset range of one read queue. Raises QueueNotFoundError."""
        if not 0 <= queue_id < topic.read_queues:
            raise QueueNotFoundError(
                f"topic {topic.name!r} has no queue {queue_id}.",
                remedy=f"Its read queues are 0 to {topic.read_queues - 1}.",
            )
        return self._range(topic.name, queue_id, self.bound(), self.log.first_offset())

    def read(
        self, topic: TopicConfig, queue_id: int, offset: int, max_messages: int
    ) -> list[StoredMessage]:
        """Return up to `max_messages` messages from `offset` on. Raises OffsetOutOfRangeError."""
        try:
            return self._read(topic, queue_id, offset, max_messages)
        except (OffsetOutOfRangeError, StoreDamagedError):
            # A recovery may have rewritten the queues since the check.
            self._wait_for_recovery()
            return self._read(topic, queue_id, offset, max_messages)

    def _read(
        self, topic: TopicConfig, queue_id: int, offset: int, max_messages: int
    ) -> list[StoredMessage]:
        end = min(self.check_range(topic, queue_id, offset, offset).maximum, offset + max_messages)
        return read_messages(self.log, self._queues.get(topic.name, queue_id), offset, end)

    def slices(
        self,
        topic: TopicConfig,
        queue_id: int,
        start: int,
        end: int,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages of [start, end) that match `where`.

        The call checks the range, before the first slice is read. Raises QueueNotFoundError,
        OffsetOutOfRangeError, StoreDamagedError.
        """
        self.check_range(topic, queue_id, start, end)
        queue = self._queues.get(topic.name, queue_id)
        return self._scanner.scan(queue, start, end, where=where, tally=tally)

    def joined_slice(
        self,
        topic: TopicConfig,
        ranges: Sequence[tuple[int, int, int]],
        where: MessageFilter,
        tally: ScanTally,
    ) -> RecordSlice | None:
        """Return each (queue id, start, end) as one slice; see `StoreSource.joined_slice`."""
        bound, log_start = self.bound(), self.log.first_offset()
        for queue_id, start, end in ranges:
            known = self._range(topic.name, queue_id, bound, log_start)
            if not known.minimum <= start <= end <= known.maximum:
                return None
        runs = [(self._queues.get(topic.name, queue), start, end) for queue, start, end in ranges]
        return slice_of_runs(self.log, runs, self.identity.config.broker_name, where, tally)

    def located(
        self, locations: MessageLocations, where: MessageFilter, tally: ScanTally
    ) -> Iterator[RecordSlice]:
        """Yield the messages at locations; see `StoreSource.slices_at`."""
        return slices_at(self.log, locations, self.identity.config.broker_name, where, tally)

    def system_offsets(self, topic: str, queue_id: int = 0) -> QueueOffsets:
        """Return the offset range of any queue; its topic may be missing from the topic table."""
        return self._range(topic, queue_id, self.bound(), self.log.first_offset())

    def records(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[RecordSlice]:
        """Yield all messages [start, end) of a queue, in buffers with the same layout as the log.

        The range is not checked beforehand. Raises OffsetOutOfRangeError, StoreDamagedError.
        """
        return self._scanner.scan(self._queues.get(topic, queue_id), start, end, in_place=True)

    def log_offsets_at(self, topic: str, queue_id: int, offsets: Ints) -> Ints:
        """Return the log offsets of messages at ascending queue offsets, -1 if missing."""
        return log_offsets_at(self._queues.get(topic, queue_id), offsets)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the message's store time in epoch ms. Raises OffsetOutOfRangeError."""
        return store_time(self.log, self._queues.get(topic, queue_id), offset)

    def log_span(self, topic: str, queue_id: int, start: int, end: int) -> ByteSpan:
        """Return the log range that contains [start, end), and the messages' approximate size.

        The size is exact for up to 256 messages. All values are 0 if none of the messages exists.
        """
        return span_of(self._queues.get(topic, queue_id), start, end)

    def cut_by_bytes(
        self, topic: str, queue_id: int, start: int, end: int, marks: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the highest offset within each size limit; see `StoreSource.split_at_bytes`."""
        return cut_by_bytes(self._queues.get(topic, queue_id), start, end, marks)

    def offset_by_time(self, topic: TopicConfig, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after the time, or the maximum."""
        known = self._any_offsets(topic, queue_id)
        queue = self._queues.get(topic.name, queue_id)
        return offset_by_time(self.log, queue, known.minimum, known.maximum, timestamp_ms)

    def close(self) -> None:
        self.files.close()
        if self._state is not None:
            self._state.close()
            self._state = None

    def check_range(self, topic: TopicConfig, queue_id: int, start: int, end: int) -> QueueOffsets:
        """Check that a queue has the offsets [start, end), and return its offset range.

        Raises QueueNotFoundError, OffsetOutOfRangeError.
        """
        known = self._any_offsets(topic, queue_id)
        if known.minimum <= start <= end <= known.maximum:
            return known
        raise OffsetOutOfRangeError(
            f"queue {queue_id} of {topic.name!r} holds the offsets {known.minimum} to"
            f" {known.maximum} (exclusive), not [{start}, {end}).",
            remedy="Older messages have expired; later messages were never written to this store.",
        )

    def _any_offsets(self, topic: TopicConfig, queue_id: int) -> QueueOffsets:
        """Return the offset range of a read queue, or of a former read queue that still has files.

        A running query may still read a former read queue.
        """
        exists = 0 <= queue_id < topic.read_queues
        if not exists and self._queues.get(topic.name, queue_id).run.starts():
            return self._range(topic.name, queue_id, self.bound(), self.log.first_offset())
        return self.queue_offsets(topic, queue_id)

    def _range(self, topic: str, queue_id: int, bound: int, log_start: int) -> QueueOffsets:
        queue: ConsumeQueue = self._queues.get(topic, queue_id)
        place = self._structure, log_start
        maximum = queue.max_offset(bound)
        if maximum == 0:
            maximum = self.topics.ended_at(topic, queue_id)
        self._shortfall.check((topic, queue_id), maximum, bound, self.interrupted_end)
        known, minimum = self._minima.get((topic, queue_id), ((), 0))
        # Without a valid shared state, the deletion of files cannot be detected.
        if known != place or bound == WHOLE_LOG or minimum >= maximum:
            minimum = queue.min_offset(log_start, maximum)
            self._minima[topic, queue_id] = place, minimum
        return QueueOffsets(minimum, maximum)

    def bound(self) -> int:
        """Return the log offset up to which messages are dispatched; WHOLE_LOG if unknown."""
        position = self._saved_position()
        return WHOLE_LOG if position is None else position.dispatched

    def log_end(self) -> int:
        """Return the log offset up to which messages are published; WHOLE_LOG if unknown."""
        position = self._saved_position()
        return WHOLE_LOG if position is None else position.published

    def _valid_state(self) -> SharedState | None:
        if not self.identity.store_id and self._layout.identity.exists():
            # When this reader was opened, only brokers had written here; now pyrocket may have,
            # too.
            self.identity = load_identity(self._layout, self.identity.config)
        if not self.identity.store_id:
            return None
        state = self._state
        if state is None:
            state = self._state = SharedState.open_readable(self._layout.state)
            if state is None:
                return None
        lock = lock_identity(self._layout.lock)
        if lock and state.is_valid(self.identity.key, lock):
            self._durable_end = None
            return state
        if not state.is_file_at(self._layout.state):
            self._state = None  # The directory was replaced: map its state next time.
            return None
        if state.is_recovering(lock) and self._poll_recovery(state):
            return self._valid_state()
        return None

    def interrupted_end(self) -> int:
        """Return the durable end of the log if a process died during a recovery; otherwise 0.

        The next recovery may truncate the log after this offset, but never before it. Must be
        called after `bound`.
        """
        state, lock = self._state, self._layout.lock
        if (
            not state
            or not state.is_recovering(lock_identity(lock))
            or is_locked(lock) is not False
        ):
            return 0
        if self._durable_end is None:
            self._durable_end = QueueEnds(self._layout).durable_end()
        # The recovering process validates the state before it releases the lock.
        return self._durable_end if state.is_recovering() else 0

    def _wait_for_recovery(self) -> None:
        state = self._state
        if state is not None and state.is_recovering(lock_identity(self._layout.lock)):
            self._poll_recovery(state)

    def _poll_recovery(self, state: SharedState) -> bool:
        """Wait for the end of the recovery, which truncates and rebuilds queues, and return True.

        Returns False if the recovering process died. Raises StoreUnavailableError
        (STORE_RECOVERING).
        """
        own, deadline = self._layout, time.monotonic() + self.recovery_seconds
        while state.is_recovering(lock_identity(own.lock)) and state.is_file_at(own.state):
            if self.interrupted_end():
                return False
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"{self._layout.root} has been in recovery for {self.recovery_seconds:.0f} s.",
                    remedy="Try again later; if the recovering process died, open the store for"
                    " writing once.",
                    code="STORE_RECOVERING",
                )
            time.sleep(self.poll_seconds)
        return True


def _derived_position(queues: QueueTable, layout: Layout) -> Position:
    ends = [queues.get(*key).max_offset(WHOLE_LOG) for key in queues.on_disk()]
    text = read_or_none(layout.config("topics")) or b""
    return Position(sum(ends), sum(ends), hash((len(ends), text)))


def iterate_messages(
    reader: Reader, topic: TopicConfig, queue_id: int | None, start: int | None, end: int | None
) -> Iterator[StoredMessage]:
    """Iterate over all queues, or over [start, end) of one queue; the call checks the range."""
    if queue_id is None:
        if start is not None or end is not None:
            raise InvalidInputError(
                f"start is {start} and end is {end}, but no queue is given.",
                remedy="Offsets refer to one queue: pass queue_id, too.",
                code="QUEUE_MISSING",
            )
        return _messages(reader, topic, reader.offsets(topic))
    check_place(topic.name, queue_id)
    known = reader.system_offsets(topic.name, queue_id)
    first = known.minimum if start is None else start
    last = known.maximum if end is None else end
    check_numbers(start=first, end=last)
    reader.check_range(topic, queue_id, first, last)
    return _messages(reader, topic, {queue_id: QueueOffsets(first, last)})


def _messages(
    reader: Reader, topic: TopicConfig, ranges: Mapping[int, QueueOffsets]
) -> Iterator[StoredMessage]:
    for queue_id, has in ranges.items():
        offset = has.minimum
        while offset < has.maximum:
            last = min(has.maximum, offset + _PULL_MESSAGES)
            cuts = reader.cut_by_bytes(topic.name, queue_id, offset, last, [_PULL_BYTES])
            # A larger message is read alone.
            count = max(cuts[0][0] - offset, 1)
            yield from reader.read(topic, queue_id, offset, count)
            offset += count


def read_undamaged(
    reader: Reader,
    topic: str,
    queue_id: int,
    start: int,
    end: int,
    *,
    log_damaged: bool = False,
    verify_crc: bool = False,
) -> Iterator[RecordSlice]:
    """Yield the readable messages of [start, end), a few MiB at a time.

    Damaged messages are skipped, so that they do not stop a service. With `log_damaged`, an error
    is logged for each of them. `verify_crc`: for bodies that say what is known of other messages.
    """
    while start < end:
        piece = first_undamaged(reader, topic, queue_id, start, end, verify_crc=verify_crc)
        if piece is not None:
            yield piece
            start += len(piece.records)
            continue
        if log_damaged:
            _log.error("message %d of queue %d of %s is damaged", start, queue_id, topic)
        start += 1


def first_undamaged(
    reader: Reader, topic: str, queue_id: int, start: int, end: int, *, verify_crc: bool = False
) -> RecordSlice | None:
    """Return the first messages of [start, end); None if the first message cannot be read."""
    while start < end:
        with suppress(StoreDamagedError, OffsetOutOfRangeError):
            piece = next(reader.records(topic, queue_id, start, end))
            if verify_crc:
                check_crcs(piece.records)
            return piece
        end = start + (end - start) // 2
    return None
