"""Delivery of timers: messages with due times of their own; see `service_runner.Service`."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    NEVER,
    PUBLISHED,
    STORE_TIME,
    TIMER_QUEUE_OFFSET,
    TIMER_READ_OFFSET,
    TIMER_READ_TIME,
    SharedState,
)
from pyrocket.engine.reader import Reader
from pyrocket.engine.writer import Writer
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TIMER_ENTRY, TimerEntries, seal
from pyrocket.metadata.service_cursors import read_cursors
from pyrocket.services.delay.pending_timers import (
    PendingTimers,
    TimerProgress,
    read_pending,
    read_second,
)
from pyrocket.services.delay.timer_copies import copies_of_due
from pyrocket.services.delay.timer_index import TimerIndex, are_after
from pyrocket.services.delay.timer_queue import read_timers, read_undelivered
from pyrocket.services.delay.timer_tally import (
    HOUR_MS,
    TIMERS_DAMAGED,
    Hours,
    add_hours,
    count_by_hour,
)
from pyrocket.services.delay.timer_window import TimerWindow, cursor_of

T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_MESSAGES = 4096
"""Delivered in one append."""

MAX_TAKEN = 65_536
"""Taken in from the queue in one turn."""


class TimerService:
    """Delivers the timers of one store that are due."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self._layout, self._reader = layout, reader
        self._removed = -1
        self.log, self._queues = reader.files.log, reader.files.queues
        self.index = TimerIndex(layout.timers)
        self._upcoming = TimerWindow(self.index)

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Take in new timers, and if that is all of them deliver some; return how many it was.

        Before all are taken in nothing is delivered: one of them may be a cancellation.
        """
        if not self._layout.topic_queues(TIMER_TOPIC).is_dir():
            return 0
        with writer.try_exclusive():
            end = writer.next_offset(TIMER_TOPIC, 0)
            if not end:
                return 0
            self._follow_clock(writer, now_ms)
            taken = self.index_new(writer)
            return (
                taken
                if writer.page[TIMER_QUEUE_OFFSET] < end
                else taken + self._deliver(writer, now_ms)
            )

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return when a timer is due, now if some are to be taken in, NEVER if none waits."""
        end = writer.next_offset(TIMER_TOPIC, 0)
        if not end:
            return NEVER
        if writer.page[TIMER_QUEUE_OFFSET] < end:
            return now_ms
        return self.read_or_rebuild(writer, lambda: self._upcoming.next_due(writer.page))

    def index_new(self, writer: Writer) -> int:
        """Put up to MOST_TAKEN timers of the queue into the buckets; return how many it was.

        The caller is in a section. They are in the files before `timed` says so; who dies in
        between has them put there once more. One that is due no later than what has been delivered
        is next.
        """
        page, end = writer.page, writer.next_offset(TIMER_TOPIC, 0)
        before = page[TIMER_QUEUE_OFFSET]
        if before >= end:
            return 0
        self.read_or_rebuild(writer, lambda: self.index.tally.read(before))
        start = max(before, self._reader.system_offsets(TIMER_TOPIC).minimum)
        stop, hours = min(end, start + MAX_TAKEN), Hours()
        self.index.make()
        for entries in self._read_new(start, stop, TimerProgress(start, cursor_of(page))):
            self.index.add(entries)
            hours = add_hours(hours, count_by_hour(entries))
        self.index.tally.add(before, stop, hours, lambda: self._saved(page))
        writer.move({TIMER_QUEUE_OFFSET: stop})
        return stop - start

    def _saved(self, page: SharedState) -> tuple[int, int]:
        """Return what has been saved as taken in, and up to when all is delivered for sure."""
        saved = read_cursors(self._layout)
        return saved.get(TIMER_QUEUE_OFFSET, 0), min(
            saved.get(TIMER_READ_TIME, 0), page[TIMER_READ_TIME]
        )

    def read_or_rebuild(self, writer: Writer, look: Callable[[], T]) -> T:
        """Return what a look at the buckets finds; damaged ones are built anew before.

        The caller is in a section.
        """
        try:
            return look()
        except StoreDamagedError as error:
            if error.code != TIMERS_DAMAGED:
                raise
            _log.warning("%s: %s It is built anew from the log.", self._layout.root, error.message)
        self._rebuild(writer.page)
        writer.structure_changed()
        return look()

    def _rebuild(self, page: SharedState) -> None:
        """Have the buckets hold what is taken in and not delivered.

        Whoever dies meanwhile leaves no tally, and the next one does it.
        """
        self.index.clear()
        first = self._reader.system_offsets(TIMER_TOPIC).minimum
        for entries in read_undelivered(
            self.log,
            self._queues.get(TIMER_TOPIC, 0),
            first,
            page[TIMER_QUEUE_OFFSET],
            cursor_of(page),
            end=page[PUBLISHED],
            stored_ms=page[STORE_TIME],
        ):
            self.index.add(entries)
        self.index.sync()
        self.index.recount(page[TIMER_QUEUE_OFFSET])

    def _read_new(self, start: int, stop: int, progress: TimerProgress) -> Iterator[TimerEntries]:
        """Yield what waits at the queue offsets [start, stop); what is late is next."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        for entries in read_timers(self.log, queue, start, stop):
            old = entries["queue_offset"] < progress.timed
            entries = entries[~old | are_after(entries, progress.cursor)]
            entries["due"] = np.maximum(entries["due"], progress.cursor[0])
            yield seal(entries)

    def waiting(self, words: Mapping[int, int], end: int = 0) -> PendingTimers:
        """Return all that waits in the queue up to `end`, taken in or not, as the words have it.

        Without buckets, as in a copy that nobody has opened for writing, and where they are
        damaged or just built anew, all is read from the log.
        """
        progress = TimerProgress.of(words)
        first = self._reader.system_offsets(TIMER_TOPIC).minimum
        new = self._read_new(max(progress.timed, first), end, progress)
        try:
            return read_pending(self.index, progress, new)
        except StoreDamagedError as error:
            if error.code != TIMERS_DAMAGED:
                raise
        found = self._read_new(first, max(end, progress.timed), progress)
        return PendingTimers(np.concatenate([np.zeros(0, TIMER_ENTRY), *found]), progress.cursor)

    def indexed(self, progress: TimerProgress) -> PendingTimers:
        """Return all that is taken in. Raises StoreDamagedError: `read_or_rebuild`."""
        return read_pending(self.index, progress)

    def indexed_since(self, timed: int, progress: TimerProgress) -> TimerEntries | None:
        """Return what waits of what has been taken in since `timed`.

        None where something of that calls off or replaces what was taken in before.
        Raises StoreDamagedError: `read_or_rebuild`.
        """
        new = list(self._read_new(timed, progress.timed, TimerProgress(timed, progress.cursor)))
        if any(entries["copies"].any() for entries in new):
            return None
        hours = {int(hour) for entries in new for hour in (entries["due"] - 1) // HOUR_MS}
        tally = self.index.tally.read(progress.timed)
        parts = [
            self.index.chosen(
                hour * HOUR_MS, lambda part: part["queue_offset"] >= timed, tally=tally
            )
            for hour in sorted(hours)
        ]
        return PendingTimers(
            np.concatenate([np.zeros(0, TIMER_ENTRY), *parts]), progress.cursor
        ).pending

    def last_entry(self, end: int) -> Entries:
        """Return the queue entry before `end`, if it is still there."""
        return self._queues.get(TIMER_TOPIC, 0).entries(max(end - 1, 0), end)

    def pending_in_second(self, words: Mapping[int, int], due_ms: int) -> Ints:
        """Return the queue offsets of what is to be delivered in the second of a due time.

        Raises StoreDamagedError: `read_or_rebuild`.
        """
        found = read_second(self.index, TimerProgress.of(words), due_ms).pending["queue_offset"]
        return np.asarray(found)

    def _follow_clock(self, writer: Writer, now_ms: int) -> None:
        """Set the cursor back if the clock has been: nothing new may count as delivered.

        What has been delivered is erased first, because it would count as pending.
        """
        cursor, timed = cursor_of(writer.page), writer.page[TIMER_QUEUE_OFFSET]
        if cursor[0] > now_ms:
            read = self.index.tally.read
            self.read_or_rebuild(
                writer, lambda: self.index.check(read(timed), cursor[0], whole=True)
            )
            self.index.erase(lambda entries: ~are_after(entries, cursor))
            self.index.recount(timed)
            writer.move({TIMER_READ_TIME: now_ms, TIMER_READ_OFFSET: 0})
            writer.structure_changed()

    def _deliver(self, writer: Writer, now_ms: int) -> int:
        page = writer.page
        due = self.read_or_rebuild(writer, lambda: self._upcoming.due(page, now_ms, MAX_MESSAGES))
        if not len(due.entries):
            return 0
        batches, due = copies_of_due(self.log, self._reader.topics.all(), due)
        # In this order: whoever reads in between has the old time, and nothing too much.
        moves = {TIMER_READ_OFFSET: due.last[1], TIMER_READ_TIME: due.last[0]}
        if batches:
            # They had room when they were sent, and hold it until they are delivered.
            writer.append(batches, moves=moves, make_room=False)
        else:
            writer.move(moves)
        self._remove_delivered(due.last[0])
        return len(due.entries)

    def _remove_delivered(self, due_ms: int) -> None:
        """Remove the files behind the cursor, as far as their deliveries are durable."""
        hour = due_ms // HOUR_MS
        if hour != self._removed:
            saved = read_cursors(self._layout).get(TIMER_READ_TIME, 0)
            self.index.remove_before(min(saved, due_ms))
            self._removed = hour
