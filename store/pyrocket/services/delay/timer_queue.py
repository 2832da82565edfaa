"""The timer topic's queue as entries of the buckets."""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import REAL_TOPIC, TIMER_OUT_MS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import TIMER_ENTRY, TimerEntries, marks, seal, timer_entries
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.record_fetch import records_at
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk, walk_all
from pyrocket.services.delay.timer_index import Cursor, are_after

_AT_ONCE = 65_536


def read_timers(
    log: CommitLog, queue: ConsumeQueue, start: int, stop: int
) -> Iterator[TimerEntries]:
    """Yield the timers at the queue offsets [start, stop), some thousands at a time.

    A damaged record, or one whose log file has gone, is passed over: it must not keep others.
    """
    for entries, _ in read_timers_with_times(log, queue, start, stop):
        yield entries


def read_timers_with_times(
    log: CommitLog, queue: ConsumeQueue, start: int, stop: int
) -> Iterator[tuple[TimerEntries, Ints]]:
    """Yield the same with when they were stored, epoch ms."""
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
    """Return whether each record waits in the timer topic."""
    same = pc.equal(records.topics(), TIMER_TOPIC.encode())
    return np.asarray(same.to_numpy(zero_copy_only=False), bool)


def ordered(entries: TimerEntries) -> tuple[TimerEntries, Ints, Ints]:
    """Return entries as they lie in the log, with their places there and their sizes."""
    entries = entries[np.argsort(entries["physical_offset"], kind="stable")]
    return entries, entries["physical_offset"], entries["size"].astype(np.int64)


def read_delivered_copies(log: CommitLog, start: int, end: int) -> TimerEntries:
    """Return entries of the copies in [start, end) of the log: only keys, due times and places.

    Raises StoreDamagedError.
    """
    return _joined(walk_all(log, start, end) if start < end else iter(()))


def read_copies_since(log: CommitLog, stored_ms: int, end: int) -> TimerEntries:
    """Return those that were stored at that time or later, as far as the log can be followed."""
    starts = log.run.starts()
    while len(starts) > 1 and 0 < _first_stored(log, starts[1]) < stored_ms:
        starts = starts[1:]
    runs = (run for start in starts for run in walk(log, start, min(end, log.file_end(start))))
    return _joined(filter(_is_whole, runs))


def have_copies(entries: TimerEntries, copies: TimerEntries) -> Bools:
    """Return of which of the entries a delivered copy lies behind them in the log."""
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
        return read_store_timestamp(log.read(start, FIXED_BYTES))
    except (OSError, StoreDamagedError):
        return 0


def _is_whole(run: RecordFields) -> bool:
    try:
        run.check_structure()
    except StoreDamagedError:
        return False
    return True


def _joined(runs: Iterator[RecordFields]) -> TimerEntries:
    return np.concatenate([np.zeros(0, TIMER_ENTRY), *map(_copies_in, runs)])


def _copies_in(run: RecordFields) -> TimerEntries:
    run.check_structure()
    marked = pc.match_substring(run.properties(), f"{TIMER_OUT_MS}\x01")
    rows = np.flatnonzero(marked.to_numpy(zero_copy_only=False))
    some = RecordFields(run.buffer, run.base, run.starts[rows], run.sizes[rows])
    homes = PropertyColumns(some.properties()).column(REAL_TOPIC)
    home = pc.fill_null(pc.equal(homes.cast("binary"), some.topics()), False)
    copies = np.asarray(home.to_numpy(zero_copy_only=False), bool) & ~of_timer_topic(some)
    return timer_entries(some, np.zeros(len(some), np.int64))[copies]


_SLACK_MS = 2000
"""A RocketMQ broker rounds to seconds."""


def read_undelivered(
    log: CommitLog,
    queue: ConsumeQueue,
    start: int,
    stop: int,
    cursor: Cursor,
    *,
    end: int,
    stored_ms: int,
) -> Iterator[TimerEntries]:
    """Yield what waits at the queue offsets [start, stop), all of which had been taken in, sealed.

    `end` is that of the log; what was due after its last store time has not been delivered.
    """
    doubtful = [np.zeros(0, TIMER_ENTRY)]
    for entries, stored in read_timers_with_times(log, queue, start, stop):
        behind = are_after(entries, cursor)
        late = ~behind & (entries["queue_offset"] > cursor[1]) & (stored >= cursor[0])
        past = behind & (entries["due"] <= stored_ms)
        doubtful.append(entries[late | past])
        yield entries[behind & ~past]
    unsure = np.concatenate(doubtful)
    if len(unsure):
        copies = read_copies_since(log, int(unsure["due"].min()) - _SLACK_MS, end)
        unsure = unsure[~have_copies(unsure, copies)]
        unsure["due"] = np.maximum(unsure["due"], cursor[0])
        yield seal(unsure)
