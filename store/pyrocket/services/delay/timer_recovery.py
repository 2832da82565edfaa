"""After a recovery: the buckets of timers hold what is pending, and nothing else.

The saved words say what was taken in and delivered by the last checkpoint. What has happened since
is in the log: timers that came later are taken in, those whose delivered copies are there are
taken out. So a loss of power loses nothing and delivers nothing twice. A RocketMQ 5 broker that ran
meanwhile says how far it came in `config/timercheck`. Without buckets, in a copy, and where they
are damaged, all is built from the queue.
"""

import logging

import numpy as np

from pyrocket.disk import io
from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none
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
    SharedState,
)
from pyrocket.engine.hooks import Recovered
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.java_timers import TimerCheck, decode_timer_check, delivered_by
from pyrocket.formats.record_fields import Bools
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TimerEntries, seal, timer_entries
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.record_fetch import read_scattered
from pyrocket.log.commit_log import CommitLog
from pyrocket.services.delay.timer_index import TimerIndex
from pyrocket.services.delay.timer_queue import (
    have_copies,
    ordered,
    read_delivered_copies,
    read_timers,
    read_undelivered,
)
from pyrocket.services.delay.timer_tally import Hours, add_hours, count_by_hour

_SLACK_MS = 2000
"""A RocketMQ broker rounds to seconds."""

_log = logging.getLogger(__name__)


def recover_timers(layout: Layout, store: Recovered) -> None:
    """Make buckets and words say what is pending; the words say what was saved of them.

    Raises StoreDamagedError, StoreUnavailableError (WRITE_FAILED).
    """
    index, queue = TimerIndex(layout.timers), store.queues.get(TIMER_TOPIC, 0)
    java = decode_timer_check(read_or_none(layout.timer_check, SMALL_FILE_BYTES) or b"")
    what = "the timers of {root} could not be recovered: {error}. Nothing is lost by it."
    with translating_os_errors(layout.root, "open it again", what=what):
        # A broker may have changed what was handed over to it.
        io.unlink(layout.handed)
        if queue.max_offset(WHOLE_LOG):
            _Recovery(store.log, queue, index, store.page, java, store.clean).run()
        else:
            index.clear()


class _Recovery:
    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        index: TimerIndex,
        page: SharedState,
        java: TimerCheck,
        clean: bool,
    ) -> None:
        self._log, self._queue, self._index, self._page = log, queue, index, page
        self._java, self._clean = java, clean
        self._timed = page[TIMER_QUEUE_OFFSET]
        self._cursor = page[TIMER_READ_TIME], page[TIMER_READ_OFFSET]
        self._delivered = self._delivered_copies()

    def run(self) -> None:
        """Do it all, durably before the words say so."""
        page, end = self._page, self._queue.max_offset(WHOLE_LOG)
        if self._is_intact():
            self._index.erase(lambda part: (part["queue_offset"] >= self._timed) | self._gone(part))
        else:
            self._rebuild(end)
        self._index.recount(self._timed)
        stop = max(self._timed, min(self._java.queue_offset, end))
        if len(self._delivered):
            stop = end
        self._take_in(stop)
        self._index.sync()
        page[TIMER_QUEUE_OFFSET] = stop
        self._follow_java()

    def _is_intact(self) -> bool:
        """Whether the buckets hold what was saved as taken in and is not delivered."""
        index = self._index
        if not index.is_there:
            return False
        try:
            index.check(index.tally.read(self._timed), self._cursor[0], whole=True)
        except StoreDamagedError as error:
            _log.warning("%s It is built anew from the log.", error.message)
            return False
        return True

    def _rebuild(self, end: int) -> None:
        page, first = self._page, self._queue.min_offset(self._log.first_offset(), end)
        self._index.clear()
        for entries in read_undelivered(
            self._log,
            self._queue,
            first,
            self._timed,
            self._cursor,
            end=page[PUBLISHED],
            stored_ms=page[STORE_TIME],
        ):
            self._index.add(entries[~self._gone(entries)])

    def _take_in(self, stop: int) -> None:
        hours: Hours = {}
        for entries in read_timers(self._log, self._queue, self._timed, stop):
            entries = entries[~self._gone(entries)]
            entries["due"] = np.maximum(entries["due"], self._cursor[0])
            self._index.add(seal(entries))
            hours = add_hours(hours, count_by_hour(entries))
        if stop > self._timed:
            self._index.tally.add(self._timed, stop, hours, lambda: (self._timed, 0))

    def _gone(self, entries: TimerEntries) -> Bools:
        """Return whether each has been delivered, though the saved words don't say so."""
        # No checksum covers what a broker says; whatever it delivered has been stored since.
        possible = entries["due"] <= self._page[STORE_TIME] + _SLACK_MS
        java = delivered_by(self._java, entries) & possible
        rows = np.flatnonzero(np.isin(entries["key"], self._delivered["key"]))
        if len(rows):
            # An entry's due time may be later than its message's, and its key may be another's.
            some, places, sizes = ordered(entries[rows])
            found = read_scattered(self._log, places, sizes)
            exact = timer_entries(found.fields(), some["queue_offset"][found.at])
            exact["physical_offset"] = places[found.at]
            known = exact[have_copies(exact, self._delivered)]
            java |= np.isin(entries["queue_offset"], known["queue_offset"])
        return java

    def _follow_java(self) -> None:
        """Have the cursor say what Java has delivered, as far as nothing else waits there."""
        page = self._page
        first = self._index.first_due(self._cursor)
        reached = min(self._java.read_ms, first) - 1
        if first <= NEVER and reached > page[TIMER_READ_TIME]:
            page[TIMER_READ_TIME], page[TIMER_READ_OFFSET] = reached, 0

    def _delivered_copies(self) -> TimerEntries:
        """Return entries, keys and due times only, of timers whose delivered copies are in the log.

        Of a clean end's: a Java broker delivers late ones before its own cursor gets there.
        """
        end = self._page[PUBLISHED]
        start = self._page[CHECKPOINTED]
        if self._clean:
            start = max(start, self._log.run.start_of(end - 1)) if self._java.read_ms else end
        return read_delivered_copies(self._log, start, end)
