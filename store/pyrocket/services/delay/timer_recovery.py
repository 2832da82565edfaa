"""Recovers the timer index after a crash, so that the index contains exactly the pending timers.

The saved cursors show which timers were indexed and delivered at the last checkpoint. The log shows
later changes: new timers are added, and timers with a delivered copy are erased. So a power failure
neither loses a timer nor delivers it twice. A RocketMQ 5 broker that ran in the meantime has saved
its progress in `config/timercheck`. If the index is damaged, or missing as in a copied store, it is
rebuilt from the queue.
"""

import logging

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import translating_os_errors
from pyrocket.disk.shared_state import (
    CHECKPOINTED,
    NEVER,
    PUBLISHED,
    STORE_TIME,
    TIMER_QUEUE_OFFSET,
    TIMER_READ_OFFSET,
    TIMER_READ_TIME,
)
from pyrocket.engine.hooks import Recovered
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Bools
from pyrocket.formats.java_timers import TimerCheck, decode_timer_check, delivered_by
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries, seal, timer_entries
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.record_fetch import read_scattered
from pyrocket.services.delay.pending_timers import TimerProgress
from pyrocket.services.delay.timer_index import Hours, TimerIndex, add_hours, count_by_hour
from pyrocket.services.delay.timer_queue import (
    SLACK_MS,
    have_copies,
    ordered,
    read_delivered_copies,
    read_timers,
    read_undelivered,
)

_log = logging.getLogger(__name__)


def recover_timers(layout: Layout, store: Recovered) -> None:
    """Recover the timer index and its cursors; see `Hooks.after_recovery`.

    Raises StoreDamagedError, StoreUnavailableError (WRITE_FAILED).
    """
    index, queue = TimerIndex(layout.timers), store.queues.get(TIMER_TOPIC, 0)
    java = decode_timer_check(io.read_or_none(layout.timer_check, io.SMALL_FILE_BYTES) or b"")
    what = "the timers of {root} could not be recovered: {error}. Nothing was lost."
    with translating_os_errors(layout.root, "open it again", what=what):
        # A broker may have changed the files that were written for it.
        io.unlink(layout.handed)
        if queue.max_offset(WHOLE_LOG):
            _Recovery(store, queue, index, java).run()
        else:
            index.clear()


class _Recovery:
    def __init__(
        self, store: Recovered, queue: ConsumeQueue, index: TimerIndex, java: TimerCheck
    ) -> None:
        self._log, self._page, self._clean = store.log, store.page, store.clean
        self._queue, self._index, self._java = queue, index, java
        self._queue_offset = store.page[TIMER_QUEUE_OFFSET]
        self._cursor = store.page[TIMER_READ_TIME], store.page[TIMER_READ_OFFSET]
        self._delivered = self._delivered_copies()

    def run(self) -> None:
        """Recover the index and flush it before the cursors move."""
        page, end = self._page, self._queue.max_offset(WHOLE_LOG)
        if self._is_intact():
            self._index.erase(
                lambda part: (part["queue_offset"] >= self._queue_offset) | self._is_delivered(part)
            )
        else:
            self._rebuild(end)
        self._index.recount(self._queue_offset)
        stop = max(self._queue_offset, min(self._java.queue_offset, end))
        if len(self._delivered):
            stop = end
        self._take_in(stop)
        self._index.sync()
        page[TIMER_QUEUE_OFFSET] = stop
        self._follow_java()

    def _is_intact(self) -> bool:
        """Return whether the index contains all pending timers below the saved queue offset."""
        index = self._index
        if not index.is_there:
            return False
        try:
            index.check(index.tally.read(self._queue_offset), self._cursor[0], whole=True)
        except StoreDamagedError as error:
            _log.warning("%s It is rebuilt from the log.", error.message)
            return False
        return True

    def _rebuild(self, end: int) -> None:
        log, queue, page = self._log, self._queue, self._page
        first = queue.min_offset(log.first_offset(), end)
        self._index.clear()
        progress = TimerProgress(self._queue_offset, self._cursor)
        for entries in read_undelivered(log, queue, first, progress, page):
            self._index.add(entries[~self._is_delivered(entries)])

    def _take_in(self, stop: int) -> None:
        hours: Hours = {}
        for entries, _ in read_timers(self._log, self._queue, self._queue_offset, stop):
            entries = entries[~self._is_delivered(entries)]
            entries["due"] = np.maximum(entries["due"], self._cursor[0])
            self._index.add(seal(entries))
            hours = add_hours(hours, count_by_hour(entries))
        if stop > self._queue_offset:
            self._index.tally.add(self._queue_offset, stop, hours, lambda: (self._queue_offset, 0))

    def _is_delivered(self, entries: TimerEntries) -> Bools:
        """Return a mask of the timers delivered since the cursors were saved, or by a broker."""
        # `timercheck` has no checksum; a timer that the broker delivered has a copy in the log.
        possible = entries["due"] <= self._page[STORE_TIME] + SLACK_MS
        java = delivered_by(self._java, entries) & possible
        rows = np.flatnonzero(np.isin(entries["key"], self._delivered["key"]))
        if len(rows):
            # An entry may be due later than its message, and two timers may have the same key.
            timers, places, sizes = ordered(entries[rows])
            scattered = read_scattered(self._log, places, sizes)
            exact = timer_entries(scattered.fields(), timers["queue_offset"][scattered.at])
            exact["physical_offset"] = places[scattered.at]
            known = exact[have_copies(exact, self._delivered)]
            java |= np.isin(entries["queue_offset"], known["queue_offset"])
        return java

    def _follow_java(self) -> None:
        """Move the read position to the broker's position, but not past a pending timer."""
        page = self._page
        first = self._index.first_due(self._cursor)
        reached = min(self._java.read_ms, first) - 1
        if first <= NEVER and reached > page[TIMER_READ_TIME]:
            page[TIMER_READ_TIME], page[TIMER_READ_OFFSET] = reached, 0

    def _delivered_copies(self) -> TimerEntries:
        """Return the delivered copies since the checkpoint.

        After a clean shutdown, these copies are needed only if a broker ran, because a broker
        delivers late timers before its own read position. In this case the copies in the last log
        file suffice.
        """
        end = self._page[PUBLISHED]
        start = self._page[CHECKPOINTED]
        if self._clean:
            start = max(start, self._log.run.start_of(end - 1)) if self._java.read_ms else end
        return read_delivered_copies(self._log, start, end)
