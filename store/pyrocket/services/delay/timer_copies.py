"""Timers that are due as messages of their topics."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.property_columns import PropertyColumns, real_places
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.timer_entry import TimerEntries, due_times
from pyrocket.index.queues.record_fetch import read_scattered
from pyrocket.log.commit_log import CommitLog
from pyrocket.metadata.topics import TopicConfig
from pyrocket.services.delay.due_copies import due_copies
from pyrocket.services.delay.timer_queue import of_timer_topic, ordered
from pyrocket.services.delay.timer_window import Due

MAX_BYTES = 8 * 1024 * 1024
MAX_TOPICS = 256
"""Of one append: it holds the turn, and others want to write."""

_log = logging.getLogger(__name__)


def copies_of_due(
    log: CommitLog, topics: Mapping[str, TopicConfig], due: Due
) -> tuple[Sequence[EncodedBatch], Due]:
    """Return what is to be delivered in one append, by topic and queue, and of how much it is.

    In each queue it is in the order of due times and then of queue offsets. What is not where it
    was is left out, with a warning.
    """
    due = _first_bytes(due)
    entries, places, sizes = ordered(due.entries[due.alive])
    found = read_scattered(log, places, sizes)
    records, entries = found.fields(), entries[found.at]
    columns = PropertyColumns(records.properties())
    rows: Ints = np.flatnonzero(_are_the_same(records, columns, entries))
    _tell_of_missing(int(np.count_nonzero(due.alive)) - len(rows))
    if not len(rows):
        return [], due
    targets = real_places(columns)
    due, rows = _with_few_topics(due, entries, rows, targets.codes)
    sorted_by = (
        entries["queue_offset"][rows],
        entries["due"][rows],
        targets.queue_ids[rows],
        targets.codes[rows],
    )
    run = found.fields(rows[np.lexsort(sorted_by)])
    copies = due_copies(run, topics, file_bytes=log.file_bytes, most_batches=len(rows))
    return copies.batches, due


def _first_bytes(due: Due) -> Due:
    """Return as many of them as are not too much for one append."""
    sizes = np.cumsum(due.entries["size"] * due.alive, dtype=np.int64)
    count = max(int(np.searchsorted(sizes, MAX_BYTES, side="right")), 1)
    return Due(due.entries[:count], due.alive[:count])


def _with_few_topics(due: Due, entries: TimerEntries, rows: Ints, codes: Ints) -> tuple[Due, Ints]:
    """Return as many of them, and their rows, as are for few enough topics."""
    order = rows[np.lexsort((entries["queue_offset"][rows], entries["due"][rows]))]
    firsts = np.sort(np.unique(codes[order], return_index=True)[1])
    if len(firsts) <= MAX_TOPICS:
        return due, rows
    order = order[: firsts[MAX_TOPICS]]
    last = entries[order[-1]]
    count = int(np.flatnonzero(due.entries["queue_offset"] == last["queue_offset"])[-1]) + 1
    return Due(due.entries[:count], due.alive[:count]), order


def _are_the_same(
    records: RecordFields, columns: PropertyColumns, entries: TimerEntries
) -> npt.NDArray[np.bool_]:
    """Return whether the records are those that the entries were made of."""
    same = of_timer_topic(records) & (records.queue_offset == entries["queue_offset"])
    return np.asarray(same & (due_times(columns) <= entries["due"]))


def _tell_of_missing(count: int) -> None:
    if count:
        _log.warning(
            "%d timers are not where they were: their log files are gone or damaged", count
        )
