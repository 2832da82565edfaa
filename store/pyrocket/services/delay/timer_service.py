"""Delivery of timers: RocketMQ 5's `TimerMessageStore`.

RocketMQ has a wheel of seconds and a log of the timers of each second. Here the queue of the timer
topic is indexed by due time. Three cursors in the shared state record the progress:
TIMER_QUEUE_OFFSET is the queue offset up to which timers are indexed; TIMER_READ_TIME and
TIMER_READ_OFFSET are the due time and queue offset of the last delivered timer. Timers in the index
after that position are pending.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    NEVER,
    TIMER_QUEUE_OFFSET,
    TIMER_READ_OFFSET,
    TIMER_READ_TIME,
    SharedState,
)
from pyrocket.engine.engine import lazy_property
from pyrocket.engine.reader import Reader
from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries, seal
from pyrocket.metadata.service_cursors import read_cursors
from pyrocket.services.delay.copies import MAX_BYTES, copies_of_due
from pyrocket.services.delay.pending_timers import (
    PendingTimers,
    TimerProgress,
    TimerWindow,
    cursor_of,
    read_pending,
)
from pyrocket.services.delay.timer_index import (
    HOUR_MS,
    TIMERS_DAMAGED,
    Hours,
    TimerIndex,
    add_hours,
    are_after,
    count_by_hour,
)
from pyrocket.services.delay.timer_queue import read_timers, read_undelivered

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TimerLimits:
    """Limits of one append, and the number of timers indexed in one exclusive section."""

    messages: int = 4096
    bytes: int = MAX_BYTES
    topics: int = 256
    indexed: int = 65_536


class TimerService:
    """Delivers the timers of one store; see `service_runner.Service`."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self._layout, self._reader = layout, reader
        self.limits, self._removed = TimerLimits(), -1
        self.log, self._queues = reader.files.log, reader.files.queues

    @lazy_property
    def index(self) -> TimerIndex:
        """The timers by due time; look at them through `read_or_rebuild`."""
        return TimerIndex(self._layout.timers)

    @lazy_property
    def _window(self) -> TimerWindow:
        return TimerWindow(self.index)

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Index new timers, then deliver due timers; return the sum of both numbers.

        Timers are delivered only when all new timers are indexed, because some may be
        cancellations.
        """
        if not self._layout.topic_queues(TIMER_TOPIC).is_dir():
            return 0
        with writer.try_exclusive():
            end = writer.dispatcher.next_offset(TIMER_TOPIC, 0)
            if not end:
                return 0
            self._follow_clock(writer, now_ms)
            indexed = self.index_new(writer)
            if writer.page[TIMER_QUEUE_OFFSET] < end:
                return indexed
            return indexed + self._deliver(writer, now_ms)

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return the earliest due time, `now_ms` if there are new timers, or NEVER."""
        end = writer.dispatcher.next_offset(TIMER_TOPIC, 0)
        if not end:
            return NEVER
        if writer.page[TIMER_QUEUE_OFFSET] < end:
            return now_ms
        return self.read_or_rebuild(writer, lambda: self._window.next_due(writer.page))

    def index_new(self, writer: Writer) -> int:
        """Index up to `limits.indexed` new timers; return their number.

        The caller must hold the write lock. TIMER_QUEUE_OFFSET moves after the entries are written;
        after a crash in between, the entries are written again. A timer that is due before the read
        position is delivered next.
        """
        page, end = writer.page, writer.dispatcher.next_offset(TIMER_TOPIC, 0)
        before = page[TIMER_QUEUE_OFFSET]
        if before >= end:
            return 0
        self.read_or_rebuild(writer, lambda: self.index.tally.read(before))
        start = max(before, self._reader.system_offsets(TIMER_TOPIC).minimum)
        stop, hours = min(end, start + self.limits.indexed), Hours()
        self.index.make()
        for entries in self._read_new(start, stop, TimerProgress(start, cursor_of(page))):
            self.index.add(entries)
            hours = add_hours(hours, count_by_hour(entries))
        self.index.tally.add(before, stop, hours, lambda: self._saved(page))
        writer.move({TIMER_QUEUE_OFFSET: stop})
        return stop - start

    def _saved(self, page: SharedState) -> tuple[int, int]:
        """Return the saved queue offset, and the due time before which deliveries are durable."""
        saved = read_cursors(self._layout)
        return saved.get(TIMER_QUEUE_OFFSET, 0), min(
            saved.get(TIMER_READ_TIME, 0), page[TIMER_READ_TIME]
        )

    def read_or_rebuild(self, writer: Writer, look: Callable[[], T]) -> T:
        """Return `look()`; if the index turns out to be damaged, rebuild the index and call `look`
        again.

        The caller must hold the write lock.
        """
        try:
            return look()
        except StoreDamagedError as error:
            if error.code != TIMERS_DAMAGED:
                raise
            _log.warning("%s: %s It is rebuilt from the log.", self._layout.root, error.message)
        self._rebuild(writer.page)
        writer.structure_changed()
        return look()

    def _rebuild(self, page: SharedState) -> None:
        """Rebuild the index from the log, with the pending timers below TIMER_QUEUE_OFFSET.

        After a crash during the rebuild the tally is missing, so the next process rebuilds again.
        """
        self.index.clear()
        first = self._reader.system_offsets(TIMER_TOPIC).minimum
        queue, progress = self._queues.get(TIMER_TOPIC, 0), TimerProgress.of(page.cursors())
        for entries in read_undelivered(self.log, queue, first, progress, page):
            self.index.add(entries)
        self.index.sync()
        self.index.recount(page[TIMER_QUEUE_OFFSET])

    def _read_new(self, start: int, stop: int, progress: TimerProgress) -> Iterator[TimerEntries]:
        """Yield entries of the pending timers at the queue offsets [start, stop).

        The entry of a timer that is due before the read position gets the read position's due time.
        """
        queue = self._queues.get(TIMER_TOPIC, 0)
        for entries, _ in read_timers(self.log, queue, start, stop):
            old = entries["queue_offset"] < progress.queue_offset
            entries = entries[~old | are_after(entries, progress.cursor)]
            entries["due"] = np.maximum(entries["due"], progress.cursor[0])
            yield seal(entries)

    def pending(self, cursors: Mapping[int, int], end: int = 0) -> PendingTimers:
        """Return all pending timers of the queue up to `end`, whether indexed or not.

        If the index is damaged, being rebuilt, or missing, as in a copy that was never opened for
        writing, all timers are read from the log.
        """
        progress = TimerProgress.of(cursors)
        first = self._reader.system_offsets(TIMER_TOPIC).minimum
        new = self._read_new(max(progress.queue_offset, first), end, progress)
        try:
            return read_pending(self.index, progress, new)
        except StoreDamagedError as error:
            if error.code != TIMERS_DAMAGED:
                raise
        parts = self._read_new(first, max(end, progress.queue_offset), progress)
        return PendingTimers(parts, progress.cursor)

    def indexed_since(self, start: int, progress: TimerProgress) -> TimerEntries | None:
        """Return the indexed pending timers at queue offset `start` or later.

        Returns None if one of these timers cancels or replaces an earlier timer. Call this through
        `read_or_rebuild`.
        """
        new = list(
            self._read_new(start, progress.queue_offset, TimerProgress(start, progress.cursor))
        )
        if any(entries["copies"].any() for entries in new):
            return None
        hours = {int(hour) for entries in new for hour in (entries["due"] - 1) // HOUR_MS}
        tally = self.index.tally.read(progress.queue_offset)
        parts = [
            self.index.chosen(
                hour * HOUR_MS, lambda part: part["queue_offset"] >= start, tally=tally
            )
            for hour in sorted(hours)
        ]
        return PendingTimers(parts, progress.cursor).pending

    def last_entry(self, end: int) -> Entries:
        """Return the queue entry before `end`, if it still exists."""
        return self._queues.get(TIMER_TOPIC, 0).entries(max(end - 1, 0), end)

    def _follow_clock(self, writer: Writer, now_ms: int) -> None:
        """Set the read position back if the clock was set back, so that new timers stay pending.

        Delivered timers are erased from the index first; otherwise they would be pending again.
        """
        cursor, end = cursor_of(writer.page), writer.page[TIMER_QUEUE_OFFSET]
        if cursor[0] > now_ms:
            read = self.index.tally.read
            self.read_or_rebuild(writer, lambda: self.index.check(read(end), cursor[0], whole=True))
            self.index.erase(lambda entries: ~are_after(entries, cursor))
            self.index.recount(end)
            writer.move({TIMER_READ_TIME: now_ms, TIMER_READ_OFFSET: 0})
            writer.structure_changed()

    def _deliver(self, writer: Writer, now_ms: int) -> int:
        page, limits = writer.page, self.limits
        due = self.read_or_rebuild(writer, lambda: self._window.due(page, now_ms, limits.messages))
        if not len(due.entries):
            return 0
        batches, due = copies_of_due(
            self.log,
            self._reader.topics.all(),
            due,
            max_bytes=limits.bytes,
            max_topics=limits.topics,
        )
        # With this order, a reader in between sees the old time and skips no timer.
        moves = {TIMER_READ_OFFSET: due.last[1], TIMER_READ_TIME: due.last[0]}
        if batches:
            # Allowed on a full disk: room was checked when the timers were sent.
            writer.append(batches, moves=moves, make_room=False)
        else:
            writer.move(moves)
        self._remove_delivered(due.last[0])
        return len(due.entries)

    def _remove_delivered(self, due_ms: int) -> None:
        """Delete index files before the read position whose deliveries are durable."""
        hour = due_ms // HOUR_MS
        if hour != self._removed:
            saved = read_cursors(self._layout).get(TIMER_READ_TIME, 0)
            self.index.remove_before(min(saved, due_ms))
            self._removed = hour
