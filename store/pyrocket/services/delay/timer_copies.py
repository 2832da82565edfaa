"""Builds copies of timers: of due timers for their topics, of pending timers for the timer queue.

Copies of the second kind preserve pending timers whose log files are about to be deleted. RocketMQ
makes the same copies every two days of timers that its wheel cannot hold. A copy replaces its
original, and its property TIMER_ROLL_TIMES is the number of times it was copied. A cancellation is
copied together with its timer.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import MAX_PROPERTIES_BYTES, TIMER_ROLL_TIMES
from pyrocket.formats.property_columns import PropertyColumns, real_places
from pyrocket.formats.record import BLANK_BYTES
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_crc import without_crc
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import TIMER_TOPIC
from pyrocket.formats.timer_entry import CANCELS, TimerEntries, due_times, places
from pyrocket.index.queues.record_fetch import Scattered, read_scattered
from pyrocket.log.commit_log import CommitLog
from pyrocket.services.delay.due_copies import due_copies
from pyrocket.services.delay.pending_timers import Due, PendingTimers
from pyrocket.services.delay.timer_queue import of_timer_topic, ordered
from pyrocket.values.admin import TopicConfig

MAX_BYTES = 8 * 1024 * 1024

_log = logging.getLogger(__name__)


def copies_of_due(
    log: CommitLog,
    topics: Mapping[str, TopicConfig],
    due: Due,
    *,
    max_bytes: int,
    max_topics: int,
) -> tuple[Sequence[EncodedBatch], Due]:
    """Return the copies for one append, and the part of `due` that it delivers.

    The append is limited because other writers wait for the write lock meanwhile. The copies of a
    queue are ordered by due time and queue offset. A timer whose record is no longer in the log is
    skipped with a warning.
    """
    due = _within_max_bytes(due, max_bytes)
    entries, places, sizes = ordered(due.entries[due.alive])
    found = read_scattered(log, places, sizes)
    records, entries = found.fields(), entries[found.at]
    columns = PropertyColumns(records.properties())
    rows: Ints = np.flatnonzero(_are_the_same(records, columns, entries))
    _log_missing(int(np.count_nonzero(due.alive)) - len(rows))
    if not len(rows):
        return [], due
    targets = real_places(columns)
    due, rows = _with_few_topics(due, entries, rows, targets.codes, max_topics)
    sorted_by = (
        entries["queue_offset"][rows],
        entries["due"][rows],
        targets.queue_ids[rows],
        targets.codes[rows],
    )
    run = found.fields(rows[np.lexsort(sorted_by)])
    copies = due_copies(run, topics, file_bytes=log.file_bytes, max_batches=len(rows))
    return copies.batches, due


def _within_max_bytes(due: Due, max_bytes: int) -> Due:
    """Return the first timers, up to `max_bytes` of records."""
    sizes = np.cumsum(due.entries["size"] * due.alive, dtype=np.int64)
    count = max(int(np.searchsorted(sizes, max_bytes, side="right")), 1)
    return Due(due.entries[:count], due.alive[:count])


def _with_few_topics(
    due: Due, entries: TimerEntries, rows: Ints, codes: Ints, max_topics: int
) -> tuple[Due, Ints]:
    """Return the first timers and their rows, up to `max_topics` topics."""
    order = rows[np.lexsort((entries["queue_offset"][rows], entries["due"][rows]))]
    firsts = np.sort(np.unique(codes[order], return_index=True)[1])
    if len(firsts) <= max_topics:
        return due, rows
    order = order[: firsts[max_topics]]
    last = entries[order[-1]]
    count = int(np.flatnonzero(due.entries["queue_offset"] == last["queue_offset"])[-1]) + 1
    return Due(due.entries[:count], due.alive[:count]), order


def _are_the_same(
    records: RecordFields, columns: PropertyColumns, entries: TimerEntries
) -> npt.NDArray[np.bool_]:
    """Return a mask of the records from which the entries were made."""
    same = of_timer_topic(records) & (records.queue_offset == entries["queue_offset"])
    return np.asarray(same & (due_times(columns) <= entries["due"]))


def _log_missing(count: int) -> None:
    if count:
        _log.warning("%d timers were not delivered: their log files are deleted or damaged", count)


def copies_to_keep(
    log: CommitLog, pending: PendingTimers, log_start: int
) -> Iterator[EncodedBatch]:
    """Yield copies of pending timers before `log_start`, a few MiB each, in queue order."""
    entries, offsets, sizes = ordered(_to_keep(pending, log_start))
    parts = np.cumsum(sizes) // MAX_BYTES
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        found = read_scattered(log, offsets[rows], sizes[rows])
        if len(found.at) < len(rows):
            _log.error(
                "%d timers are damaged and are deleted with their log files",
                len(rows) - len(found.at),
            )
        if len(found.at):
            yield _copies(found, entries["copies"][rows][found.at] + 1, log.file_bytes)


def _to_keep(pending: PendingTimers, log_start: int) -> TimerEntries:
    entries = pending.entries
    below = entries["physical_offset"] < log_start
    kept = below & pending.alive
    cancels = below & pending.ahead & (entries["copies"] == CANCELS)
    if cancels.any():
        named = places(entries)
        kept |= cancels & np.isin(named, named[~below & (entries["copies"] != CANCELS)])
    return entries[kept]


def _copies(found: Scattered, times: Ints, file_bytes: int) -> EncodedBatch:
    records = found.fields()
    properties = without_crc(records.properties())
    marked = _with_times(properties, times)
    lengths, longer = records.properties_length, pc.binary_length(marked).to_numpy()
    # Without TIMER_ROLL_TIMES, a power failure before the deletion would deliver a timer twice.
    fits = (longer <= MAX_PROPERTIES_BYTES) & (
        records.sizes + longer - lengths <= file_bytes - BLANK_BYTES
    )
    changes = Changes(properties=pc.if_else(pa.array(fits), marked, properties))
    rows = np.arange(len(records))
    return copy_records(records, rows, TIMER_TOPIC, np.zeros(len(rows), np.int32), changes)


def _with_times(properties: pa.BinaryArray, times: Ints) -> pa.BinaryArray:
    """Return the blocks with TIMER_ROLL_TIMES appended; the last value of a property is valid."""
    closed = pc.or_(pc.ends_with(properties, b"\x02"), pc.equal(properties, b""))
    nothing, end = pa.scalar(b"", pa.binary()), pa.scalar(b"\x02", pa.binary())
    return pc.binary_join_element_wise(
        properties,
        pc.if_else(closed, nothing, end),
        pa.scalar(f"{TIMER_ROLL_TIMES}\x01".encode(), pa.binary()),
        pa.array(times).cast(pa.string()).cast(pa.binary()),
        end,
        nothing,
    )
