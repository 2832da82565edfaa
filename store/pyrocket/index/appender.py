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

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.clock import Clock
from pyrocket.disk.io import SyncError
from pyrocket.disk.state_page import (
    APPENDS,
    DISPATCHED,
    FAILED,
    FLUSHED,
    PUBLISHED,
    RESERVED,
    STORE_TIME,
    StatePage,
)
from pyrocket.errors import StoreUnavailableError
from pyrocket.formats.queue_entry import build_entries
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.runs import Ints
from pyrocket.index.dispatcher import Dispatcher
from pyrocket.log.commit_log import CommitLog, Placement
from pyrocket.log.flusher import failed_before, fsync_failed
from pyrocket.log.walk import walk_all


@dataclass(frozen=True)
class Appended:
    """Where the records of one batch went, in the batch's order."""

    batch: EncodedBatch
    physical_offsets: Ints
    queue_offsets: Ints


Plan = list[tuple[Appended, Placement]]


class Appender:
    """Appends encoded batches, one section a call."""

    def __init__(
        self, log: CommitLog, dispatcher: Dispatcher, page: StatePage, clock: Clock
    ) -> None:
        self._log, self._dispatcher, self._page, self._clock = log, dispatcher, page, clock

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
        page = self._page
        start = page[PUBLISHED]
        store_time = max(self._clock(), page[STORE_TIME])
        plan = self._plan(batches, start)
        end = plan[-1][1].end if plan else start
        page[RESERVED] = end
        for appended, _ in plan:
            batch = appended.batch
            batch.place(appended.physical_offsets, appended.queue_offsets, store_time)
        try:
            if plan:
                self._write_head_last(plan, end, whole=whole)
        except OSError:
            # Whole records may be there: after a reboot a recovery would take them for the log's.
            with suppress(OSError):
                self._erase_unpublished()
            raise
        page[STORE_TIME] = store_time
        if moves:
            page.intend(end, moves)
        page[PUBLISHED] = end
        page.fulfil()
        page[APPENDS] += len(batches)
        try:
            for appended, _ in plan:
                self._dispatch(appended)
        except OSError as error:
            raise StoreUnavailableError(
                f"the messages are in the log, but not yet in their queues: {error}.",
                remedy="They become visible with the next write that succeeds; don't send again.",
                code="QUEUES_NOT_WRITTEN",
            ) from error
        page[DISPATCHED] = end
        return [appended for appended, _ in plan]

    def roll_forward(self) -> None:
        """Undo what was reserved but not published, dispatch what was published.

        The caller holds the turn. Raises StoreFailedError after a failed write or fsync.
        """
        page = self._page
        if page[FAILED]:
            raise failed_before()
        self._erase_unpublished()
        page.fulfil()
        published = page[PUBLISHED]
        if page[DISPATCHED] < published:
            dispatched = page[DISPATCHED]
            runs = walk_all(self._log, dispatched, published)
            self._dispatcher.dispatch(runs, dispatched=dispatched)
            page[DISPATCHED] = published

    def _erase_unpublished(self) -> None:
        page = self._page
        if page[RESERVED] > page[PUBLISHED]:
            self._log.erase(page[PUBLISHED], page[RESERVED])
            page[RESERVED] = page[PUBLISHED]

    def _write_head_last(self, plan: Plan, end: int, *, whole: bool) -> None:
        first = plan[0][0]
        offset = int(first.physical_offsets[0])
        head = first.batch.withhold_head()
        for appended, placement in plan:
            self._log.write(placement, appended.batch.data, appended.batch.bounds)
        if whole:
            self._sync(self._page[FLUSHED], end)
        self._log.run.write(offset, head)
        if whole:
            self._sync(offset, offset + len(head))

    def _sync(self, start: int, end: int) -> None:
        try:
            self._log.run.sync(start, end)
        except SyncError as error:
            self._page[FAILED] = 1
            raise fsync_failed(error) from error

    def _plan(self, batches: Sequence[EncodedBatch], start: int) -> Plan:
        """Give every record its place in the log and in its queue."""
        plan: Plan = []
        tails: dict[tuple[str, int], int] = {}
        for batch in batches:
            placement = self._log.place(start, batch.sizes)
            queue_offsets = np.empty(len(batch), np.int64)
            for first, last in runs_of(batch.queue_ids):
                key = batch.topic, int(batch.queue_ids[first])
                tail = tails[key] if key in tails else self._dispatcher.next_offset(*key)
                queue_offsets[first:last] = np.arange(tail, tail + last - first)
                tails[key] = tail + last - first
            plan.append((Appended(batch, placement.offsets, queue_offsets), placement))
            start = placement.end
        return plan

    def _dispatch(self, appended: Appended) -> None:
        """Write the queue entries of records that we have just made: no need to read them."""
        batch = appended.batch
        entries = build_entries(appended.physical_offsets, batch.sizes, batch.tags_codes)
        for first, last in runs_of(batch.queue_ids):
            queue_id = int(batch.queue_ids[first])
            offset = int(appended.queue_offsets[first])
            self._dispatcher.put(batch.topic, queue_id, offset, entries[first:last])


def runs_of(values: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return [first, last) of each run of equal values."""
    if len(values) == 1:
        return [(0, 1)]
    cuts = np.flatnonzero(np.diff(values)) + 1
    bounds = [0, *cuts.tolist(), len(values)] if len(values) else []
    return list(itertools.pairwise(bounds))
