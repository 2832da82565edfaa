"""Appends messages to the log, in one exclusive section.

    acquire the write lock
    roll forward   complete the append of a killed writer: erase its unpublished bytes, and dispatch
                   its published records
    reserve        set `reserved` to the end of the records about to be written
    write          the records after `published`: no reader sees them
    publish        move `published`: the records exist; service cursors move at the same time
    dispatch       write their ConsumeQueue entries
    reveal         move `dispatched`: readers see them
    release the write lock

A writer may be killed at any of these steps: the next holder of the lock rolls forward first. Queue
offsets are read from the queues, not from memory, because other processes may have appended.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pyrocket.base.clock import Clock
from pyrocket.disk.io import SyncError
from pyrocket.disk.shared_state import (
    APPENDS,
    DISPATCHED,
    FAILED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
)
from pyrocket.engine.recovery import StoreParts
from pyrocket.errors import SinkError, StoreFailedError, StoreUnavailableError
from pyrocket.formats.arrow_buffers import Ints, runs_of
from pyrocket.formats.queue_entry import build_entries
from pyrocket.formats.record_batch import Chunk, EncodedBatch, with_crc_room
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.keys.key_items import MAX_PENDING_KEYS
from pyrocket.log.commit_log import CommitLog, Placed
from pyrocket.log.flusher import failed_before, fsync_failed
from pyrocket.log.record_walk import walk_all


@dataclass(frozen=True)
class Streamed:
    """A streamed append of [start, end) of the log; `appended` is None for too many keys."""

    start: int
    end: int
    appended: list[Placed] | None


Preface = Callable[[int, int], EncodedBatch]
"""Returns the batch, of constant size, to write before a stream at [start, end) of the log."""


class OffsetAllocator:
    """Assigns offsets to consecutive chunks from a log offset on. Requires the write lock."""

    def __init__(self, log: CommitLog, next_offset: Callable[[str, int], int], start: int) -> None:
        self._log, self._next_offset = log, next_offset
        self._tails: dict[tuple[str, int], int] = {}
        self.end = start

    def place(self, chunk: Chunk) -> Placed:
        """Assign offsets to the records of a chunk. Raises MessageError (RECORD_TOO_LARGE)."""
        placement = self._log.place(self.end, chunk.sizes)
        queue_ids = chunk.queue_ids
        parts = [
            self._take(chunk.topic, int(queue_ids[first]), last - first)
            for first, last in runs_of(queue_ids)
        ]
        self.end = placement.end
        return Placed(chunk, placement, parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _take(self, topic: str, queue_id: int, count: int) -> Ints:
        """Return the next `count` offsets of a queue."""
        key = topic, queue_id
        tail = self._tails[key] if key in self._tails else self._next_offset(topic, queue_id)
        self._tails[key] = tail + count
        return np.arange(tail, tail + count)


class Appender:
    """Appends encoded batches. Every method requires the write lock."""

    def __init__(self, store: StoreParts, clock: Clock, *, property_crc: bool) -> None:
        """With `property_crc`, records get a checksum of the whole record."""
        self._log, self._dispatcher, self._state = store.log, store.dispatcher, store.page
        self._clock, self.property_crc = clock, property_crc
        self.max_pending = MAX_PENDING_KEYS

    def append(
        self,
        batches: Sequence[EncodedBatch],
        *,
        whole: bool = False,
        moves: Mapping[int, int] | None = None,
    ) -> list[Placed]:
        """Append the batches as one: all become visible together.

        The first eight bytes of the first record are written last: until then, every scan of the
        log, also by a broker, ends before the batch. With `whole`, these bytes are written between
        two fsyncs, so that either all records survive a power loss or none. `moves` (field → value)
        are set atomically with the publication of the records, even if the process is killed.
        """
        start, store_time = self._state[PUBLISHED], self._store_time()
        placer = self._placer(start)
        plan = [placer.place(batch) for batch in map(self._with_room, batches)]
        self._state[RESERVED] = placer.end
        if plan:
            with self._erase_on_failure():
                self._write_head_last(plan, placer.end, store_time, whole=whole)
        self._publish(placer.end, store_time, len(batches), moves)
        self._reveal(plan, store_time)
        return plan

    def append_streamed(self, chunks: Iterable[Chunk], preface: Preface | None = None) -> Streamed:
        """Append chunks as one atomic batch, like `append`, without holding them in memory.

        `chunks` is iterated three times, to find the end of the batch, to write its records, and to
        dispatch them. It must yield the same chunks each time.
        """
        start, store_time = self._state[PUBLISHED], self._store_time()
        end = self._end_of(chunks, start, preface)
        first: list[Chunk] = [self._with_room(preface(start, end))] if preface else []
        self._state[RESERVED] = end
        with self._erase_on_failure():
            plan = map(self._placer(start).place, chain(first, chunks))
            self._write_head_last(plan, end, store_time, whole=True)
        self._publish(end, store_time, 1, None)
        known = _Collected(self.max_pending)
        plan = map(self._placer(start).place, chain(first, chunks))
        try:
            self._reveal(map(known.add, plan), store_time)
        except SinkError:  # A chunk cannot be read again: dispatch it from the log.
            self._catch_up()
            return Streamed(start, end, None)
        return Streamed(start, end, known.appended)

    def _end_of(self, chunks: Iterable[Chunk], start: int, preface: Preface | None) -> int:
        first: list[Chunk] = [self._with_room(preface(start, start))] if preface else []
        for chunk in chain(first, chunks):
            if self.property_crc and not chunk.crc_room:
                raise SinkError(
                    "the rows were staged before the store was set to property_crc.",
                    remedy="Run the write again: none of its rows has been published.",
                    code="STAGED_WITHOUT_CRC",
                )
            start = self._log.place(start, chunk.sizes).end
        return start

    def append_raw(self, offset: int, records: memoryview, runs: Sequence[RecordFields]) -> None:
        """Append whole records, with the blanks between them, that have their places already.

        `offset` must be the end of the log; `runs` are the same records.
        """
        end = offset + len(records)
        self._state[RESERVED] = end
        with self._erase_on_failure():
            position = offset
            while position < end:
                stop = min(end, self._log.file_end(position))
                self._log.run.write_or_create(position, records[position - offset : stop - offset])
                position = stop
        store_time = max((int(run.store_timestamp.max()) for run in runs), default=0)
        self._publish(end, max(store_time, self._state[STORE_TIME]), 1, None)
        self._catch_up(runs if self._state[DISPATCHED] == offset else None)

    def roll_forward(self) -> None:
        """Erase unpublished bytes, dispatch published records. Raises StoreFailedError."""
        state = self._state
        if state[FAILED]:
            raise failed_before()
        self._erase_unpublished()
        state.apply_intent()
        if state[DISPATCHED] < state[PUBLISHED]:
            self._catch_up()

    def write_zeros(self) -> None:
        """Write a few zeros after the published records, to try whether the log can be written."""
        end = self._state[PUBLISHED]
        self._log.run.write_or_create(end, bytes(min(8, -end % self._log.file_bytes or 8)))

    def _catch_up(self, runs: Iterable[RecordFields] | None = None) -> None:
        """Dispatch the published records that are not; without `runs`, they are read."""
        state = self._state
        dispatched, published = state[DISPATCHED], state[PUBLISHED]
        self._dispatcher.changed.begin(dispatched, published)
        runs = walk_all(self._log, dispatched, published) if runs is None else runs
        self._dispatcher.dispatch(runs, dispatched=dispatched)
        state[DISPATCHED] = published

    def _with_room(self, batch: EncodedBatch) -> EncodedBatch:
        """Return a batch with room for checksums, which the store's own batches do not have."""
        if not self.property_crc or batch.crc_room:
            return batch
        return with_crc_room(batch, self._log.file_bytes)

    def _store_time(self) -> int:
        return max(self._clock(), self._state[STORE_TIME])

    def _placer(self, start: int) -> OffsetAllocator:
        return OffsetAllocator(self._log, self._dispatcher.next_offset, start)

    @contextmanager
    def _erase_on_failure(self) -> Iterator[None]:
        """Erase the written bytes if the write fails.

        Otherwise, recovery after a reboot would treat the complete records as published.
        """
        try:
            yield
        except StoreFailedError:
            raise
        except Exception:  # Includes a chunk that cannot be loaded.
            with suppress(OSError):
                self._erase_unpublished()
            raise

    def _erase_unpublished(self) -> None:
        state = self._state
        if state[RESERVED] > state[PUBLISHED]:
            self._log.truncate(state[PUBLISHED], state[RESERVED])
            state[RESERVED] = state[PUBLISHED]

    def _write_head_last(
        self, plan: Iterable[Placed], end: int, store_time: int, *, whole: bool
    ) -> None:
        offset, head = 0, b""
        for placed in plan:
            batch, offsets = placed.batch.load(), placed.physical_offsets
            batch.place(offsets, placed.queue_offsets, store_time)
            # Before the records exist: a service may check too early, but never too late.
            if (due := batch.earliest_due(store_time)) is not None:
                self._state.lower_due(due)
            if not head:
                offset, head = int(offsets[0]), batch.withhold_head()
            self._log.write(placed.placement, batch.data, batch.bounds)
        if whole:
            self._sync(self._state[FLUSHED], end)
        self._log.run.write(offset, head)
        if whole:
            self._sync(offset, offset + len(head))

    def _sync(self, start: int, end: int) -> None:
        try:
            self._log.run.sync(start, end)
        except SyncError as error:
            self._state[FAILED] = 1
            raise fsync_failed(error) from error

    def _publish(
        self, end: int, store_time: int, count: int, moves: Mapping[int, int] | None
    ) -> None:
        state = self._state
        state[STORE_TIME] = store_time
        if moves:
            state.record_intent(end, moves)
        state[PUBLISHED] = end
        state.apply_intent()
        state[APPENDS] += count

    def _reveal(self, plan: Iterable[Placed], store_time: int) -> None:
        """Dispatch the published records, then move `dispatched`, so that readers see them."""
        end = self._state[PUBLISHED]
        self._dispatcher.changed.begin(self._state[DISPATCHED], end)
        try:
            for placed in plan:
                self._dispatch(placed, store_time)
        except OSError as error:
            raise StoreUnavailableError(
                f"the messages are in the log, but not yet in their queues: {error}.",
                remedy="They become visible with the next write that succeeds; don't send again.",
                code="QUEUES_NOT_WRITTEN",
            ) from error
        self._state[DISPATCHED] = end

    def _dispatch(self, placed: Placed, store_time: int) -> None:
        """Write the queue entries of new records from memory, without reading the log."""
        batch = placed.batch
        codes = batch.tags_codes if batch.delays is None else store_time + batch.delays
        entries = build_entries(placed.physical_offsets, batch.sizes, codes)
        for first, last in runs_of(batch.queue_ids):
            queue_id, offset = int(batch.queue_ids[first]), int(placed.queue_offsets[first])
            self._dispatcher.put(batch.topic, queue_id, offset, entries[first:last])


class _Collected:
    """Collects the appended chunks while they have at most `max_pending` keys."""

    def __init__(self, max_pending: int) -> None:
        self.appended: list[Placed] | None = []
        self._keys, self._max_pending = 0, max_pending

    def add(self, placed: Placed) -> Placed:
        """Collect a chunk and return it unchanged."""
        keys = placed.batch.keys
        self._keys += self._max_pending + 1 if keys is None else len(keys)
        if self._keys > self._max_pending:
            self.appended = None
        elif self.appended is not None:
            self.appended.append(placed)
        return placed
