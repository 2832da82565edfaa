"""After a recovery: the buckets of timers hold what is pending, and nothing else.

The saved words say what was taken in and delivered by the last checkpoint. What has happened since
is in the log: timers that came later are taken in, those whose delivered copies are there are
taken out. So a loss of power loses nothing and delivers nothing twice. A RocketMQ 5 broker that ran
meanwhile says how far it came in `config/timercheck`. Without buckets, in a copy, all is built
from the queue.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from pyrocket.disk import io
from pyrocket.disk.durable import read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.disk.permission import raise_denied
from pyrocket.disk.state_page import (
    CHECKPOINTED,
    NEVER,
    PUBLISHED,
    TIMED,
    TIMER_DUE,
    TIMER_OFFSET,
    StatePage,
)
from pyrocket.errors import StoreUnavailableError
from pyrocket.formats.properties import REAL_TOPIC, TIMER_OUT_MS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_check import TimerCheck, decode_timer_check, delivered_by
from pyrocket.formats.timer_entry import TIMER_ENTRY, TimerEntries, marks, seal, timer_entries
from pyrocket.index.consume_queue import ConsumeQueue
from pyrocket.index.dispatcher import WHOLE_LOG
from pyrocket.index.queues import Queues
from pyrocket.index.scattered import read_scattered
from pyrocket.index.timer_buckets import TimerBuckets, are_behind
from pyrocket.index.timer_queue import of_timer_topic, ordered, read_timers
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.walk import walk_all


def settle_timers(
    layout: Layout, log: CommitLog, queues: Queues, page: StatePage, *, clean: bool
) -> None:
    """Make buckets and words say what is pending; the words say what was saved of them.

    The caller has the store alone. Raises StoreDamagedError, StoreUnavailableError (WRITE_FAILED).
    """
    buckets, queue = TimerBuckets(layout.timers), queues.get(TIMER_TOPIC, 0)
    java = decode_timer_check(read_or_none(layout.timer_check) or b"")
    try:
        # A broker may have changed what was handed over to it.
        io.unlink(layout.handed)
        if queue.max_offset(WHOLE_LOG):
            _Settling(log, queue, buckets, page, java, clean).run()
        else:
            buckets.clear()
    except OSError as error:
        raise_denied(error)
        raise StoreUnavailableError(
            f"the timers of {layout.root} could not be recovered: {error}. Nothing is lost by it.",
            remedy="Free space or repair the disk, then open it again.",
            code="WRITE_FAILED",
        ) from error


class _Settling:
    def __init__(
        self,
        log: CommitLog,
        queue: ConsumeQueue,
        buckets: TimerBuckets,
        page: StatePage,
        java: TimerCheck,
        clean: bool,
    ) -> None:
        self._log, self._queue, self._buckets, self._page = log, queue, buckets, page
        self._java, self._clean = java, clean
        self._timed = page[TIMED]
        self._cursor = page[TIMER_DUE], page[TIMER_OFFSET]
        self._delivered = self._delivered_copies()

    def run(self) -> None:
        """Do it all, durably before the words say so."""
        page, end = self._page, self._queue.max_offset(WHOLE_LOG)
        start = self._timed
        if self._buckets.is_there:
            self._buckets.erase(
                lambda part: (part["queue_offset"] >= self._timed) | self._gone(part)
            )
        else:
            start = self._queue.min_offset(self._log.first_offset(), end)
        stop = max(self._timed, min(self._java.queue_offset, end))
        if len(self._delivered):
            stop = end
        self._take_in(start, stop)
        self._buckets.sync()
        page[TIMED] = stop
        self._follow_java()

    def _take_in(self, start: int, stop: int) -> None:
        self._buckets.make()
        for entries in read_timers(self._log, self._queue, start, stop):
            taken_before = entries["queue_offset"] < self._timed
            old = taken_before & ~are_behind(entries, self._cursor)
            entries = entries[~old & ~self._gone(entries)]
            entries["due"] = np.maximum(entries["due"], self._cursor[0])
            self._buckets.add(seal(entries))

    def _gone(self, entries: TimerEntries) -> Bools:
        """Return whether each has been delivered, though the saved words don't say so."""
        java = delivered_by(self._java, entries)
        rows = np.flatnonzero(np.isin(entries["key"], self._delivered["key"]))
        if len(rows):
            # An entry's due time may be later than its message's, and its key may be another's.
            some, places, sizes = ordered(entries[rows])
            found = read_scattered(self._log, places, sizes)
            exact = timer_entries(found.fields(), some["queue_offset"][found.at])
            exact["physical_offset"] = places[found.at]
            java |= np.isin(entries["queue_offset"], self._copied(exact)["queue_offset"])
        return java

    def _copied(self, entries: TimerEntries) -> TimerEntries:
        """Return those of which a delivered copy lies behind them in the log."""
        known, of = np.unique(marks(self._delivered), return_inverse=True)
        last = np.zeros(len(known), np.int64)
        np.maximum.at(last, of, self._delivered["physical_offset"])
        wanted = marks(entries)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return entries[(known[at] == wanted) & (last[at] > entries["physical_offset"])]

    def _follow_java(self) -> None:
        """Have the cursor say what Java has delivered, as far as nothing else waits there."""
        page = self._page
        first = self._buckets.first_due(self._cursor)
        reached = min(self._java.read_ms, first) - 1
        if first <= NEVER and reached > page[TIMER_DUE]:
            page[TIMER_DUE], page[TIMER_OFFSET] = reached, 0

    def _delivered_copies(self) -> TimerEntries:
        """Return entries, keys and due times only, of timers whose delivered copies are in the log.

        Of a clean end's: a Java broker delivers late ones before its own cursor gets there.
        """
        end = self._page[PUBLISHED]
        start = self._page[CHECKPOINTED]
        if self._clean:
            start = max(start, self._log.run.start_of(end - 1)) if self._java.read_ms else end
        parts = [_copies_in(run) for run in _runs(self._log, start, end)]
        return np.concatenate([np.zeros(0, TIMER_ENTRY), *parts])


def _runs(log: CommitLog, start: int, end: int) -> Iterator[RecordFields]:
    return walk_all(log, start, end) if start < end else iter(())


def _copies_in(run: RecordFields) -> TimerEntries:
    run.check_structure()
    marked = pc.match_substring(run.properties(), f"{TIMER_OUT_MS}\x01")
    rows = np.flatnonzero(marked.to_numpy(zero_copy_only=False))
    some = RecordFields(run.buffer, run.base, run.starts[rows], run.sizes[rows])
    homes = PropertyColumns(some.properties()).column(REAL_TOPIC)
    home = pc.fill_null(pc.equal(homes.cast("binary"), some.topics()), False)
    copies = np.asarray(home.to_numpy(zero_copy_only=False), bool) & ~of_timer_topic(some)
    return timer_entries(some, np.zeros(len(some), np.int64))[copies]
