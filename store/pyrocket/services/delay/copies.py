"""Builds copies of due messages for their topics, and of pending timers for the timer queue.

A copy of a due message differs from the pending record only in its topic, queue, offsets and store
time. As in RocketMQ, it keeps the properties DELAY, REAL_TOPIC and REAL_QID, and the flag of a
committed transaction. Source: `ScheduleMessageService.messageTimeup`.

Copies of the second kind preserve pending timers whose log files are about to be deleted. RocketMQ
makes the same copies every two days of timers that its wheel cannot hold. A copy replaces its
original, and its property TIMER_ROLL_TIMES is the number of times it was copied. A cancellation is
copied together with its timer.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints, runs_of
from pyrocket.formats.properties import MAX_PROPERTIES_BYTES, TIMER_ROLL_TIMES
from pyrocket.formats.property_columns import PropertyColumns, real_places
from pyrocket.formats.record import BLANK_BYTES, MAX_TOPIC_BYTES, SYS_TRANSACTION_MASK
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_crc import crc_lengths, without_crc
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.formats.timer_entry import CANCELS, TimerEntries, due_times, places
from pyrocket.index.queues.record_fetch import Scattered, read_scattered
from pyrocket.log.commit_log import CommitLog
from pyrocket.services.delay.pending_timers import Due, PendingTimers
from pyrocket.services.delay.timer_queue import of_timer_topic, ordered
from pyrocket.values.admin import TopicConfig

_NEVER_DELIVERED_TO = frozenset([HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC])
"""RocketMQ drops messages for the half topic; elsewhere they would never become visible."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DueCopies:
    """Copies of the first `taken` messages, except `dropped` messages that have no copy."""

    batches: list[EncodedBatch]
    taken: int
    dropped: int = 0


def due_copies(
    run: RecordFields, topics: Mapping[str, TopicConfig], *, file_bytes: int, max_batches: int
) -> DueCopies:
    """Return copies of checked records, in their order.

    The order matters: only the first copies may survive a power failure, and recovery takes the
    last surviving copy as the end of delivery (`skip_delivered`). Therefore a batch ends where the
    topic changes, and `max_batches` may not suffice for all messages.

    A message for a deleted topic, or without a valid topic and queue, is dropped with a warning. A
    message whose queue no longer exists is delivered to another queue of the topic.
    """
    places = real_places(run.property_columns)
    known = [_Target.of(topics, name) for name in places.names]
    queue_ids = _queue_ids(known, places.codes, places.queue_ids)
    longer = (
        np.array([target.name_bytes for target in known] or [0])[places.codes] - run.topic_length
    )
    longer = longer - crc_lengths(run.properties)
    kept = (queue_ids >= 0) & (run.sizes + longer <= file_bytes - BLANK_BYTES)
    rows = np.flatnonzero(kept)
    parts = runs_of(places.codes[rows])
    taken = len(run) if len(parts) <= max_batches else int(rows[parts[max_batches][0]])
    batches = [
        _copy(run, rows[first:last], places.names[places.codes[rows[first]]], queue_ids)
        for first, last in parts[:max_batches]
    ]
    dropped = np.flatnonzero(~kept[:taken])
    if len(dropped):
        _log_dropped(run, dropped, {target.name for target in known if not target.queues})
    return DueCopies(batches, taken, len(dropped))


@dataclass(frozen=True)
class _Target:
    """The current state of a topic; `queues` is 0 if nothing can be delivered to it."""

    name: str
    name_bytes: int
    queues: int
    write_queues: int

    @staticmethod
    def of(topics: Mapping[str, TopicConfig], name: str) -> "_Target":
        length, topic = len(name.encode()), topics.get(name)
        if topic is None or name in _NEVER_DELIVERED_TO or length > MAX_TOPIC_BYTES:
            return _Target(name, length, 0, 1)
        queues = max(topic.read_queues, topic.write_queues)
        return _Target(name, length, queues, topic.write_queues)


def _queue_ids(known: list[_Target], codes: Ints, wanted: Ints) -> Ints:
    """Return the queue id of each message; -1 if it cannot be delivered."""
    if not known:
        return np.full(len(codes), -1)
    queues = np.array([target.queues for target in known])[codes]
    write_queues = np.array([target.write_queues for target in known])[codes]
    placed = np.where(wanted < queues, wanted, wanted % write_queues)
    return np.where((codes >= 0) & (queues > 0), np.where(wanted < 0, -1, placed), -1)


def _copy(
    run: RecordFields, rows: npt.NDArray[np.int64], topic: str, queue_ids: Ints
) -> EncodedBatch:
    changes = Changes(transaction=run.sys_flag[rows] & SYS_TRANSACTION_MASK)
    return copy_records(run, rows, topic, queue_ids[rows].astype(np.int32), changes)


def _log_dropped(run: RecordFields, rows: npt.NDArray[np.int64], missing: set[str]) -> None:
    _log.warning(
        "%d delayed messages are dropped, the first at log offset %d: %s.",
        len(rows),
        int(run.physical_offset[rows[0]]),
        f"nothing can be delivered to topic {min(missing)!r}"
        if missing
        else "their properties contain no valid queue",
    )


MAX_BYTES = 8 * 1024 * 1024


def copies_of_due(
    log: CommitLog, topics: Mapping[str, TopicConfig], due: Due, *, max_bytes: int, max_topics: int
) -> tuple[Sequence[EncodedBatch], Due]:
    """Return the copies for one append, and the part of `due` that it delivers.

    The append is limited because other writers wait for the write lock meanwhile. The copies of a
    queue are ordered by due time and queue offset. A timer whose record is no longer in the log is
    skipped with a warning.
    """
    due = _within_max_bytes(due, max_bytes)
    entries, places, sizes = ordered(due.entries[due.alive])
    scattered = read_scattered(log, places, sizes)
    records, entries = scattered.fields(), entries[scattered.at]
    columns = records.property_columns
    rows: Ints = np.flatnonzero(_are_the_same(records, columns, entries))
    if gone := int(np.count_nonzero(due.alive)) - len(rows):
        _log.warning("%d timers were not delivered: their log files are deleted or damaged", gone)
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
    run = scattered.fields(rows[np.lexsort(sorted_by)])
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


def copies_to_keep(
    log: CommitLog, pending: PendingTimers, log_start: int
) -> Iterator[EncodedBatch]:
    """Yield copies of pending timers before `log_start`, a few MiB each, in queue order."""
    entries, offsets, sizes = ordered(_to_keep(pending, log_start))
    parts = np.cumsum(sizes) // MAX_BYTES
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        scattered = read_scattered(log, offsets[rows], sizes[rows])
        if len(scattered.at) < len(rows):
            _log.error(
                "%d timers are damaged and are deleted with their log files",
                len(rows) - len(scattered.at),
            )
        if len(scattered.at):
            yield _copies(scattered, entries["copies"][rows][scattered.at] + 1, log.file_bytes)


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
    properties = without_crc(records.properties)
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
