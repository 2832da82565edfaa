"""Moves the cursors of the delay levels past delivered messages after a crash.

The checkpoint saves the cursors as they were before its flush. Recovery reads the log after the
checkpoint and finds the copies appended there, so their messages are not delivered again. Copies
are appended in queue order (`due_copies`), and recovery keeps the first part of an append. So if a
message has a copy, all earlier messages of its level were delivered, too.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.disk.shared_state import (
    CHECKPOINTED,
    MAX_DELAY_LEVELS,
    PUBLISHED,
    SharedState,
    level_field,
)
from pyrocket.engine.hooks import Recovered
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import DELAY, REAL_QID, REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.formats.system_topics import SCHEDULE_TOPIC
from pyrocket.index.queues.consume_queue import QueueTable
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.scanner import Scanner
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import walk_all

_NOWHERE = -1
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivered:
    """Delivered messages: their marks, and the log offset of the last copy with each mark."""

    marks: pa.StringArray
    places: Ints

    def __len__(self) -> int:
        return len(self.places)

    def find(self, scheduled: RecordFields) -> Ints:
        """Return the index of each scheduled message's mark; -1 if it was not delivered.

        A message that is after the copy in the log was scheduled again later, and is not delivered
        yet.
        """
        indexes = pc.index_in(delivery_marks(scheduled), value_set=self.marks)
        at = pc.fill_null(indexes, _NOWHERE).to_numpy()
        later = self.places[at] > scheduled.physical_offset if len(self) else at > at
        return np.where((at != _NOWHERE) & later, at, _NOWHERE)


def delivered_since(log: CommitLog, start: int, end: int) -> Delivered:
    """Return the messages that were delivered in [start, end) of a valid log."""
    marks: list[pa.StringArray] = []
    places: list[Ints] = [np.zeros(0, np.int64)]
    for run in walk_all(log, start, end):
        run.check_structure()
        for part in _delivered_of(run):
            marks.append(delivery_marks(part))
            places.append(part.physical_offset)
    every = pa.chunked_array(marks, pa.string()).combine_chunks().dictionary_encode()
    last = np.full(len(every.dictionary), _NOWHERE)
    np.maximum.at(last, every.indices.to_numpy(), np.concatenate(places))
    return Delivered(every.dictionary, last)


def skip_delivered(store: Recovered) -> None:
    """Move the cursors of the delay levels past delivered messages.

    After a clean shutdown the cursors are exact. After an unclean shutdown, all copies appended
    since the cursors were saved are in the recovered part of the log, which starts at CHECKPOINTED.
    """
    if store.clean:
        return
    log, queues, page = store.log, store.queues, store.page
    pending = dict(_pending(queues, page, log.first_offset()))
    if not pending:
        return
    delivered = delivered_since(log, page[CHECKPOINTED], page[PUBLISHED])
    if not len(delivered):
        return
    scanner = Scanner(log)
    for level, (start, end) in pending.items():
        pieces = scanner.scan(queues.get(SCHEDULE_TOPIC, level - 1), start, end, in_place=True)
        try:
            page[level_field(level)] = max(start, _end_of_delivered(delivered, pieces))
        except (StoreDamagedError, OffsetOutOfRangeError) as error:
            _log.warning("messages of delay level %d may be delivered twice: %s", level, error)


def _pending(
    queues: QueueTable, page: SharedState, log_start: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the levels whose cursor is before the end of their queue, with cursor and end."""
    for topic, queue_id in queues.on_disk():
        if topic == SCHEDULE_TOPIC and queue_id < MAX_DELAY_LEVELS:
            queue = queues.get(topic, queue_id)
            end = queue.max_offset(WHOLE_LOG)
            start = max(page[level_field(queue_id + 1)], queue.min_offset(log_start, end))
            if start < end:
                yield queue_id + 1, (start, end)


def _end_of_delivered(delivered: Delivered, pieces: Iterable[RecordSlice]) -> int:
    """Return the queue offset after the last delivered message; 0 if there is none.

    If several messages have the same mark, only the first was certainly delivered.
    """
    marks: list[Ints] = [np.zeros(0, np.int64)]
    offsets: list[Ints] = [np.zeros(0, np.int64)]
    for piece in pieces:
        indexes = delivered.find(piece.records)
        rows = np.flatnonzero(indexes != _NOWHERE)
        marks.append(indexes[rows])
        offsets.append(piece.first_offset + rows)
    _, first = np.unique(np.concatenate(marks), return_index=True)
    return int(np.concatenate(offsets)[first].max(initial=-1)) + 1


def _delivered_of(run: RecordFields) -> Iterator[RecordFields]:
    # A cheap search first, because most messages of a log were never scheduled.
    scheduled = pc.match_substring(run.properties, f"{REAL_TOPIC}\x01".encode())
    candidates = run.part(scheduled.to_numpy(zero_copy_only=False))
    chosen = candidates.part(are_delivered(candidates).to_numpy(zero_copy_only=False))
    if len(chosen):
        yield chosen


_NAMES = (UNIQ_KEY, DELAY, TIMER_OUT_MS, REAL_TOPIC, REAL_QID)


def delivery_marks(run: RecordFields) -> pa.StringArray:
    """Return a mark for each checked record: a string that a scheduled message shares with its
    copy.

    The message id alone is not enough: RocketMQ schedules each retry of a failed message with the
    same id, usually with another level.
    """
    properties = run.property_columns
    numbers = (run.field("born_timestamp"), run.field("crc"), run.body_length)
    return pc.binary_join_element_wise(
        *map(properties.column, _NAMES),
        *(pa.array(column).cast(pa.string()) for column in numbers),
        "\x01",
        null_handling="replace",
    )


def are_delivered(run: RecordFields) -> pa.BooleanArray:
    """Return a mask of the checked records that are copies: they are in their real topic."""
    properties = run.property_columns
    home = properties.column(REAL_TOPIC).cast(pa.binary())
    waited = pc.or_(
        pc.is_valid(properties.column(DELAY)), pc.is_valid(properties.column(TIMER_OUT_MS))
    )
    return pc.fill_null(pc.and_(waited, pc.equal(home, run.topics)), False)
