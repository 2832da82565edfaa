"""Delivered copies of timers in the log, and what they were copied from."""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.properties import REAL_TOPIC, TIMER_OUT_MS
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_decode import read_store_timestamp
from pyrocket.formats.record_fields import Bools, RecordFields
from pyrocket.formats.timer_entry import TIMER_ENTRY, TimerEntries, marks, timer_entries
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk, walk_all
from pyrocket.services.delay.timer_queue import of_timer_topic


def delivered_copies(log: CommitLog, start: int, end: int) -> TimerEntries:
    """Return entries of the copies in [start, end) of the log: only keys, due times and places.

    Raises StoreDamagedError.
    """
    return _joined(walk_all(log, start, end) if start < end else iter(()))


def copies_since(log: CommitLog, stored_ms: int, end: int) -> TimerEntries:
    """Return those that were stored at that time or later, as far as the log can be followed."""
    starts = log.run.starts()
    while len(starts) > 1 and 0 < _first_stored(log, starts[1]) < stored_ms:
        starts = starts[1:]
    runs = (run for start in starts for run in walk(log, start, min(end, log.file_end(start))))
    return _joined(filter(_is_whole, runs))


def copied(entries: TimerEntries, copies: TimerEntries) -> Bools:
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
