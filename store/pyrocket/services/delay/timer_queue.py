"""Reads sent, delivered and pending timers from the log.

The queue of the timer topic contains all timers that were sent. A delivered timer has a copy, with
the same key and due time, later in the log. Timers without such a copy are pending; the index is
recovered and rebuilt from them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from pyrocket.disk.shared_state import PUBLISHED, STORE_TIME, SharedState
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Bools, Ints
from pyrocket.formats.properties import REAL_TOPIC, TIMER_OUT_MS
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TIMER_ENTRY, TimerEntries, marks, seal, timer_entries
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.record_fetch import records_at
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk, walk_all
from pyrocket.services.delay.pending_timers import TimerProgress
from pyrocket.services.delay.timer_index import are_after

_AT_ONCE = 65_536


def read_timers(
    log: CommitLog, queue: ConsumeQueue, start: int, stop: int
) -> Iterator[tuple[TimerEntries, Ints]]:
    """Yield the timers at the queue offsets [start, stop), and their store times, epoch ms.

    A damaged record, or a record whose log file was deleted, is skipped.
    """
    while start < stop:
        entries = queue.entries(start, min(stop, start + _AT_ONCE))
        if not len(entries):
            return
        offsets = entries["physical_offset"].astype(np.int64)
        for rows, records in records_at(log, offsets, entries["size"].astype(np.int64)):
            made = timer_entries(records, start + rows)
            whole = of_timer_topic(records) & (records.queue_offset == start + rows)
            yield made[whole], records.store_timestamp[whole]
        start += len(entries)


def of_timer_topic(records: RecordFields) -> Bools:
    """Return a mask of the records in the timer topic."""
    same = pc.equal(records.topics, TIMER_TOPIC.encode())
    return np.asarray(same.to_numpy(zero_copy_only=False), bool)


def ordered(entries: TimerEntries) -> tuple[TimerEntries, Ints, Ints]:
    """Return the entries in log order, with their log offsets and sizes."""
    entries = entries[np.argsort(entries["physical_offset"], kind="stable")]
    return entries, entries["physical_offset"], entries["size"].astype(np.int64)


def read_delivered_copies(log: CommitLog, start: int, end: int) -> TimerEntries:
    """Return the delivered copies in [start, end) of the log.

    Only keys, due times and log offsets of the entries are set. Raises StoreDamagedError.
    """
    return _joined(walk_all(log, start, end) if start < end else iter(()))


def read_copies_since(log: CommitLog, stored_ms: int, end: int) -> TimerEntries:
    """Return the delivered copies stored since `stored_ms` in the readable part of the log."""
    starts = log.run.starts()
    while len(starts) > 1 and 0 < _first_stored(log, starts[1]) < stored_ms:
        starts = starts[1:]
    runs = (run for start in starts for run in walk(log, start, min(end, log.file_end(start))))
    return _joined(filter(RecordFields.has_structure, runs))


def have_copies(entries: TimerEntries, copies: TimerEntries) -> Bools:
    """Return a mask of the entries that have a delivered copy later in the log."""
    if not len(copies):
        return np.zeros(len(entries), bool)
    known, of = np.unique(marks(copies), return_inverse=True)
    last = np.zeros(len(known), np.int64)
    np.maximum.at(last, of, copies["physical_offset"])
    wanted = marks(entries)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.asarray((known[at] == wanted) & (last[at] > entries["physical_offset"]))


def _first_stored(log: CommitLog, start: int) -> int:
    try:
        return log.stored_at(start)
    except (OSError, StoreDamagedError):
        return 0


def _joined(runs: Iterator[RecordFields]) -> TimerEntries:
    return np.concatenate([np.zeros(0, TIMER_ENTRY), *map(_copies_in, runs)])


def _copies_in(run: RecordFields) -> TimerEntries:
    run.check_structure()
    marked = pc.match_substring(run.properties, f"{TIMER_OUT_MS}\x01")
    candidates = run.part(marked.to_numpy(zero_copy_only=False))
    homes = candidates.property_columns.column(REAL_TOPIC)
    home = pc.fill_null(pc.equal(homes.cast("binary"), candidates.topics), False)
    copies = np.asarray(home.to_numpy(zero_copy_only=False), bool) & ~of_timer_topic(candidates)
    return timer_entries(candidates, np.zeros(len(candidates), np.int64))[copies]


SLACK_MS = 2000
"""A RocketMQ broker rounds due times to seconds."""


def read_undelivered(
    log: CommitLog, queue: ConsumeQueue, start: int, progress: TimerProgress, page: SharedState
) -> Iterator[TimerEntries]:
    """Yield sealed entries of the pending timers at queue offset `start` or later, from the log.

    Only timers that were indexed according to `progress` are considered. A timer that is due after
    the store time of `page` was not delivered.

    A timer has been delivered if the cursor is past its due time, with two exceptions. A timer that
    was sent when the cursor was already past its due time may be pending. A timer after the cursor
    may have been delivered before the clock was set back. These exceptions are few; the log is
    searched for their copies, starting at their due time.
    """
    cursor, uncertain = progress.cursor, [np.zeros(0, TIMER_ENTRY)]
    for entries, stored in read_timers(log, queue, start, progress.queue_offset):
        ahead = are_after(entries, cursor)
        late = ~ahead & (entries["queue_offset"] > cursor[1]) & (stored >= cursor[0])
        past = ahead & (entries["due"] <= page[STORE_TIME])
        uncertain.append(entries[late | past])
        yield entries[ahead & ~past]
    unsure = np.concatenate(uncertain)
    if len(unsure):
        copies = read_copies_since(log, int(unsure["due"].min()) - SLACK_MS, page[PUBLISHED])
        unsure = unsure[~have_copies(unsure, copies)]
        unsure["due"] = np.maximum(unsure["due"], cursor[0])
        yield seal(unsure)
