"""Delivery of timers: messages with due times of their own; see `service_runner.Service`."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pyrocket.cursors import read_cursors
from pyrocket.disk.file_run import FileRun
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import NEVER, TIMED, TIMER_DUE, TIMER_OFFSET
from pyrocket.due_copies import due_copies
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.real_place import real_places
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.runs import Ints
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries, seal, timer_entries
from pyrocket.index.queues import Queues
from pyrocket.index.scattered import read_scattered
from pyrocket.index.timer_buckets import HOUR_MS, TimerBuckets, are_behind
from pyrocket.index.timer_queue import of_timer_topic, ordered, read_timers
from pyrocket.log.commit_log import CommitLog
from pyrocket.reader import Reader
from pyrocket.timers.upcoming import Due, Upcoming, cursor_of
from pyrocket.timers.waiting import Progress, Waiting, read_slot, read_waiting
from pyrocket.writer import Writer

MOST_MESSAGES = 4096
MOST_BYTES = 8 * 1024 * 1024
"""Delivered in one append."""

MOST_TAKEN = 65_536
"""Taken in from the queue in one turn."""

MOST_TOPICS = 256
"""One append holds the turn, and others want to write."""

_log = logging.getLogger(__name__)


class TimerService:
    """Delivers the timers of one store that are due."""

    def __init__(self, layout: Layout, reader: Reader) -> None:
        self._layout, self._reader = layout, reader
        self._removed = -1
        config = reader.identity.config
        run = FileRun(layout.commit_log, config.log_file_bytes, layout.scratch, writable=False)
        self.log = CommitLog(run)
        self._queues = Queues(layout, config.queue_file_bytes, writable=False)
        self.buckets = TimerBuckets(layout.timers)
        self._upcoming = Upcoming(self.buckets)

    def close(self) -> None:
        """Close what is open."""
        self.log.run.close()
        self._queues.close()

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Take in new timers, and if that is all of them deliver some; return how many it was.

        Before all are taken in nothing is delivered: one of them may be a cancellation.
        """
        with writer.try_section():
            end = writer.next_offset(TIMER_TOPIC, 0)
            if not end:
                return 0
            self._follow_clock(writer, now_ms)
            taken = self.take_in(writer)
            return taken if writer.page[TIMED] < end else taken + self._deliver(writer, now_ms)

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return when a timer is due, now if some are to be taken in, NEVER if none waits."""
        end = writer.next_offset(TIMER_TOPIC, 0)
        if not end:
            return NEVER
        return now_ms if writer.page[TIMED] < end else self._upcoming.next_due(writer.page)

    def take_in(self, writer: Writer) -> int:
        """Put up to MOST_TAKEN timers of the queue into the buckets; return how many it was.

        The caller is in a section. They are in the files before `timed` says so; who dies in
        between has them put there once more. One that is due no later than what has been delivered
        is next.
        """
        page, end = writer.page, writer.next_offset(TIMER_TOPIC, 0)
        if page[TIMED] >= end:
            return 0
        start = max(page[TIMED], self._reader.system_offsets(TIMER_TOPIC).minimum)
        stop = min(end, start + MOST_TAKEN)
        for entries in self._read_new(start, stop, page[TIMER_DUE]):
            self.buckets.add(entries)
        writer.move({TIMED: stop})
        return stop - start

    def _read_new(self, start: int, stop: int, delivered_ms: int) -> Iterator[TimerEntries]:
        queue = self._queues.get(TIMER_TOPIC, 0)
        for entries in read_timers(self.log, queue, start, stop):
            entries["due"] = np.maximum(entries["due"], delivered_ms)
            yield seal(entries)

    def waiting(self, words: Mapping[int, int], end: int) -> Waiting:
        """Return all that waits in the queue up to `end`, taken in or not, as the words have it."""
        progress = Progress.of(words)
        new = self._read_new(progress.timed, end, progress.cursor[0])
        return read_waiting(self.buckets, progress, new)

    def last_place(self, end: int) -> Entries:
        """Return the queue entry before `end`, if it is still there."""
        return self._queues.get(TIMER_TOPIC, 0).entries(max(end - 1, 0), end)

    def pending_at(self, words: Mapping[int, int], due_ms: int) -> Ints:
        """Return the queue offsets of what is to be delivered in the second of a due time."""
        found = read_slot(self.buckets, Progress.of(words), due_ms).pending["queue_offset"]
        return np.asarray(found)

    def _follow_clock(self, writer: Writer, now_ms: int) -> None:
        """Set the cursor back if the clock has been: nothing new may count as delivered.

        What has been delivered is erased first, because it would count as pending.
        """
        cursor = cursor_of(writer.page)
        if cursor[0] > now_ms:
            self.buckets.erase(lambda entries: ~are_behind(entries, cursor))
            writer.move({TIMER_DUE: now_ms, TIMER_OFFSET: 0})
            writer.structure_changed()

    def _deliver(self, writer: Writer, now_ms: int) -> int:
        due = _first_bytes(self._upcoming.due(writer.page, now_ms, MOST_MESSAGES))
        if not len(due.entries):
            return 0
        batches, due = self._copies(due)
        moves = dict(zip((TIMER_DUE, TIMER_OFFSET), due.last, strict=True))
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
            saved = read_cursors(self._layout).get(TIMER_DUE, 0)
            self.buckets.remove_before(min(saved, due_ms))
            if saved // HOUR_MS >= hour:
                self._removed = hour

    def _copies(self, due: Due) -> tuple[Sequence[EncodedBatch], Due]:
        """Return what is to be delivered, by topic and queue, and of how much it is."""
        entries, places, sizes = ordered(due.entries[due.alive])
        found = read_scattered(self.log, places, sizes)
        records, entries = found.fields(), entries[found.at]
        rows: Ints = np.flatnonzero(_are_the_same(records, entries))
        _tell_of_missing(int(np.count_nonzero(due.alive)) - len(rows))
        if not len(rows):
            return [], due
        targets = real_places(PropertyColumns(records.properties()))
        due, rows = _with_few_topics(due, entries, rows, targets.codes)
        sorted_by = (
            entries["queue_offset"][rows],
            entries["due"][rows],
            targets.queue_ids[rows],
            targets.codes[rows],
        )
        copies = due_copies(
            found.fields(rows[np.lexsort(sorted_by)]),
            self._reader.topics.all(),
            file_bytes=self.log.file_bytes,
            most_batches=len(rows),
        )
        return copies.batches, due


def _first_bytes(due: Due) -> Due:
    """Return as many of them as are not too much for one append."""
    sizes = np.cumsum(due.entries["size"] * due.alive, dtype=np.int64)
    count = max(int(np.searchsorted(sizes, MOST_BYTES, side="right")), 1)
    return Due(due.entries[:count], due.alive[:count])


def _with_few_topics(due: Due, entries: TimerEntries, rows: Ints, codes: Ints) -> tuple[Due, Ints]:
    """Return as many of them, and their rows, as are for few enough topics."""
    order = rows[np.lexsort((entries["queue_offset"][rows], entries["due"][rows]))]
    firsts = np.sort(np.unique(codes[order], return_index=True)[1])
    if len(firsts) <= MOST_TOPICS:
        return due, rows
    order = order[: firsts[MOST_TOPICS]]
    last = entries[order[-1]]
    count = int(np.flatnonzero(due.entries["queue_offset"] == last["queue_offset"])[-1]) + 1
    return Due(due.entries[:count], due.alive[:count]), order


def _are_the_same(records: RecordFields, entries: TimerEntries) -> npt.NDArray[np.bool_]:
    """Return whether the records are those that the entries were made of."""
    offsets = records.queue_offset
    made = timer_entries(records, offsets)
    same = (offsets == entries["queue_offset"]) & (made["key"] == entries["key"])
    return (
        same
        & of_timer_topic(records)
        & (made["due"] <= entries["due"])
        & (made["copies"] == entries["copies"])
    )


def _tell_of_missing(count: int) -> None:
    if count:
        _log.warning(
            "%d timers are not where they were: their log files are gone or damaged", count
        )
