"""The exclusive section in which messages enter the log.

    take the turn
    roll forward   erase what a dead writer left unpublished, dispatch what it left undispatched
    reserve        say how far the bytes to come will reach
    write          records behind `published`: nobody sees them
    publish        one word: the records exist; a service's cursors move with it
    dispatch       their queue entries
    reveal         one word: readers see them
    give the turn back

A writer killed anywhere in between harms nobody: the next turn begins by rolling forward. Queue
offsets come from the queues themselves, never from memory that another process made stale.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

from pyrocket.clock import Clock
from pyrocket.config import StoreConfig
from pyrocket.disk.io import SyncError
from pyrocket.disk.shared_state import (
    APPENDS,
    DISPATCHED,
    FAILED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
    SharedState,
)
from pyrocket.engine.placing import OffsetAllocator, Placed, runs_of
from pyrocket.errors import SinkError, StoreFailedError, StoreUnavailableError
from pyrocket.formats.queue_entry import build_entries
from pyrocket.formats.record_batch import Appended, Chunk, EncodedBatch, with_crc_room
from pyrocket.index.keys.pending_keys import MAX_NOTES
from pyrocket.index.queues.dispatcher import Dispatcher
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.flusher import failed_before, fsync_failed
from pyrocket.log.record_walk import walk_all


@dataclass(frozen=True)
class Streamed:
    """What has been appended in a stream: [start, end) of the log.

    `appended` is None where there were too many keys to remember them.
    """

    start: int
    end: int
    appended: list[Appended] | None


Preface = Callable[[int, int], EncodedBatch]
"""Returns what goes before a stream that takes [start, end) of the log, always of one size."""


class Appender:
    """Appends encoded batches, one section a call."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        page: SharedState,
        clock: Clock,
        config: StoreConfig,
    ) -> None:
        self._log, self._dispatcher, self._page, self._clock = log, dispatcher, page, clock
        self.property_crc = bool(config.property_crc)

    def append(
        self,
        batches: Sequence[EncodedBatch],
        *,
        whole: bool = False,
        moves: Mapping[int, int] | None = None,
    ) -> list[Appended]:
        """Append the batches as one: all become visible together. The caller is in a section.

        The first eight bytes of the first record are written last: until then every scanner, of a
        Java broker too, ends before them. With `whole` they are written between two fsyncs, so
        that a loss of power also leaves all, durably, or none. The words of `moves` get their
        values with the publication, whoever dies.
        """
        start, store_time = self._page[PUBLISHED], self._store_time()
        placer = self._placer(start)
        plan = [placer.place(batch) for batch in map(self._with_room, batches)]
        self._page[RESERVED] = placer.end
        if plan:
            with self._erasing_on_failure():
                self._write_head_last(plan, placer.end, store_time, whole=whole)
        self._publish(placer.end, store_time, len(batches), moves)
        self._reveal(plan, store_time)
        return [_appended(placed) for placed in plan]

    def append_streamed(self, chunks: Iterable[Chunk], preface: Preface | None = None) -> Streamed:
        """Append chunks as one whole batch, as `append` does, without holding them in memory.

        `chunks` yields the same three times: to find out where the batch ends, to write its
        records, and to write their queue entries. The caller is in a section.
        """
        start, store_time = self._page[PUBLISHED], self._store_time()
        end = self._end_of(chunks, start, preface)
        first: list[Chunk] = [self._with_room(preface(start, end))] if preface else []
        self._page[RESERVED] = end
        with self._erasing_on_failure():
            plan = map(self._placer(start).place, chain(first, chunks))
            self._write_head_last(plan, end, store_time, whole=True)
        self._publish(end, store_time, 1, None)
        known = _Known()
        plan = map(self._placer(start).place, chain(first, chunks))
        try:
            self._reveal(map(known.note, plan), store_time)
        except SinkError:  # A chunk cannot be read again, but the log has it.
            self._dispatch_from_log()
            return Streamed(start, end, None)
        return Streamed(start, end, known.appended)

    def _end_of(self, chunks: Iterable[Chunk], start: int, preface: Preface | None) -> int:
        first: list[Chunk] = [self._with_room(preface(start, start))] if preface else []
        for chunk in chain(first, chunks):
            if self.property_crc and not chunk.crc_room:
                raise SinkError(
                    "the rows were staged before the store was set to property_crc.",
                    remedy="Run the write again: nothing of it has been published.",
                    code="STAGED_WITHOUT_CRC",
                )
            start = self._log.place(start, chunk.sizes).end
        return start

    def roll_forward(self) -> None:
        """Undo what was reserved but not published, dispatch what was published.

        The caller holds the turn. Raises StoreFailedError after a failed write or fsync.
        """
        page = self._page
        if page[FAILED]:
            raise failed_before()
        self._erase_unpublished()
        page.apply_intent()
        if page[DISPATCHED] < page[PUBLISHED]:
            self._dispatch_from_log()

    def _dispatch_from_log(self) -> None:
        page = self._page
        dispatched, published = page[DISPATCHED], page[PUBLISHED]
        self._dispatcher.changed.begin(dispatched, published)
        runs = walk_all(self._log, dispatched, published)
        self._dispatcher.dispatch(runs, dispatched=dispatched)
        page[DISPATCHED] = published

    def _with_room(self, batch: EncodedBatch) -> EncodedBatch:
        """Return a batch with room for checksums: the store's own come without."""
        if not self.property_crc or batch.crc_room:
            return batch
        return with_crc_room(batch, self._log.file_bytes)

    def _store_time(self) -> int:
        return max(self._clock(), self._page[STORE_TIME])

    def _placer(self, start: int) -> OffsetAllocator:
        return OffsetAllocator(self._log, self._dispatcher.next_offset, start)

    @contextmanager
    def _erasing_on_failure(self) -> Iterator[None]:
        """Erase what was written if not all was.

        Whole records may be there: after a reboot a recovery would take them for the log's.
        """
        try:
            yield
        except StoreFailedError:
            raise
        except Exception:  # A chunk that cannot be loaded, too; told on as it is.
            with suppress(OSError):
                self._erase_unpublished()
            raise

    def _erase_unpublished(self) -> None:
        page = self._page
        if page[RESERVED] > page[PUBLISHED]:
            self._log.truncate(page[PUBLISHED], page[RESERVED])
            page[RESERVED] = page[PUBLISHED]

    def _write_head_last(
        self, plan: Iterable[Placed], end: int, store_time: int, *, whole: bool
    ) -> None:
        offset, head = 0, b""
        for placed in plan:
            batch, offsets = placed.chunk.load(), placed.placement.offsets
            batch.place(offsets, placed.queue_offsets, store_time)
            self._note_due(batch, store_time)
            if not head:
                offset, head = int(offsets[0]), batch.withhold_head()
            self._log.write(placed.placement, batch.data, batch.bounds)
        if whole:
            self._sync(self._page[FLUSHED], end)
        self._log.run.write(offset, head)
        if whole:
            self._sync(offset, offset + len(head))

    def _note_due(self, batch: EncodedBatch, store_time: int) -> None:
        """Tell services of what is due before it is there: too early does no harm."""
        due = batch.earliest_due(store_time)
        if due is not None:
            self._page.lower_due(due)

    def _sync(self, start: int, end: int) -> None:
        try:
            self._log.run.sync(start, end)
        except SyncError as error:
            self._page[FAILED] = 1
            raise fsync_failed(error) from error

    def _publish(
        self, end: int, store_time: int, count: int, moves: Mapping[int, int] | None
    ) -> None:
        page = self._page
        page[STORE_TIME] = store_time
        if moves:
            page.record_intent(end, moves)
        page[PUBLISHED] = end
        page.apply_intent()
        page[APPENDS] += count

    def _reveal(self, plan: Iterable[Placed], store_time: int) -> None:
        """Write the queue entries of what has been published, then let readers see it."""
        end = self._page[PUBLISHED]
        self._dispatcher.changed.begin(self._page[DISPATCHED], end)
        try:
            for placed in plan:
                self._dispatch(placed, store_time)
        except OSError as error:
            raise StoreUnavailableError(
                f"the messages are in the log, but not yet in their queues: {error}.",
                remedy="They become visible with the next write that succeeds; don't send again.",
                code="QUEUES_NOT_WRITTEN",
            ) from error
        self._page[DISPATCHED] = end

    def _dispatch(self, placed: Placed, store_time: int) -> None:
        """Write the queue entries of records that we have just made: no need to read them."""
        chunk = placed.chunk
        codes = chunk.tags_codes if chunk.delays is None else store_time + chunk.delays
        entries = build_entries(placed.placement.offsets, chunk.sizes, codes)
        for first, last in runs_of(chunk.queue_ids):
            queue_id, offset = int(chunk.queue_ids[first]), int(placed.queue_offsets[first])
            self._dispatcher.put(chunk.topic, queue_id, offset, entries[first:last])


class _Known:
    """What has been appended, remembered as long as it is not too much."""

    def __init__(self) -> None:
        self.appended: list[Appended] | None = []
        self._keys = 0

    def note(self, placed: Placed) -> Placed:
        """Remember a chunk, and return it."""
        keys = placed.chunk.keys
        self._keys += MAX_NOTES + 1 if keys is None else len(keys)
        if self._keys > MAX_NOTES:
            self.appended = None
        elif self.appended is not None:
            self.appended.append(_appended(placed))
        return placed


def _appended(placed: Placed) -> Appended:
    return Appended(placed.chunk, placed.placement.offsets, placed.queue_offsets)
