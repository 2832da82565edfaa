"""The records of pulls, which are checked and decoded to columns like those of a store."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyrocket.errors import RecordDamagedError, UnsupportedError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record import follow
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.remoting.pulls import Window
from pyrocket.values.message import MessageQueue

_INNER_BATCH = 0x80
"""The system flag of a record with several messages: `MessageSysFlag.INNER_BATCH_FLAG`."""


def record_fields(
    queue: MessageQueue, windows: Sequence[Window], queue_ids: Sequence[int] = ()
) -> RecordFields:
    """Return the records of windows, checked, one window after the other.

    queue_ids: The queue of each window, if they are of several queues of the topic.

    Raises RecordDamagedError, and UnsupportedError (UNSUPPORTED_RECORD) for an inner batch.
    """
    content = b"".join(data for window in windows for data in window.records)
    starts, reached = follow(memoryview(content), 0)
    bounds = np.array([*starts, reached])
    fields = RecordFields(pa.py_buffer(content), 0, bounds[:-1], np.diff(bounds))
    fields.base = fields.field("physical_offset") - fields.starts
    if reached != len(content):
        raise _damaged(queue, f"there is no record after {len(starts)} records")
    offsets, sizes = fields.queue_offset, [sum(map(len, window.records)) for window in windows]
    window_of = np.searchsorted(np.cumsum(sizes), fields.starts, "right")
    _check_no_batches(queue, fields)
    try:
        ids = np.array(queue_ids)[window_of] if queue_ids else queue.queue_id
        fields.check_places(queue.topic, ids, offsets)
    except RecordDamagedError as error:
        raise _damaged(queue, error.message.rstrip(".")) from error
    limits = np.array([(window.start, window.end, window.at) for window in windows])
    firsts, ends, nexts = limits.reshape(-1, 3)[window_of].T
    # With tags, an answer can reach beyond its window; these messages are also in the next one.
    was_asked = (offsets >= firsts) & (offsets < np.maximum(ends, nexts))
    ascends = (np.diff(offsets) > 0) | (np.diff(window_of) > 0)
    if not (was_asked.all() and ascends.all()):
        raise _damaged(queue, "their queue offsets were not requested, or not ascending")
    is_inside = offsets < ends
    return fields if is_inside.all() else fields.part(is_inside)


def _check_no_batches(queue: MessageQueue, fields: RecordFields) -> None:
    is_batch = (fields.sys_flag & _INNER_BATCH) != 0
    if is_batch.any():
        raise UnsupportedError(
            f"the message {fields.queue_offset[int(np.argmax(is_batch))]} of {queue} of the broker"
            f" {queue.broker} contains a batch: the topic has `queue.type` BatchCQ.",
            remedy="Read a topic without this attribute.",
            code="UNSUPPORTED_RECORD",
        )


def _damaged(queue: MessageQueue, reason: str) -> RecordDamagedError:
    return RecordDamagedError(
        f"the broker {queue.broker} has sent bytes for {queue} that are no records: {reason}.",
        remedy="Pull again; if it fails again, check the files of the broker, and its slave.",
    )


def selected(
    fields: RecordFields, where: MessageFilter, tally: ScanTally, examined: int
) -> RecordFields:
    """Return the records that match `where`; count them, and the messages that were examined."""
    chosen = fields
    if len(fields) and not where.wants_all:
        chosen = fields.part(where.matching(fields.property_columns, len(fields)))
    tally.add(ScanTally(examined, len(fields), len(chosen)))
    return chosen


def records_of(data: bytes | memoryview) -> list[Record]:
    """Return records that are one after the other."""
    starts, reached = follow(memoryview(data), 0)
    return [decode_record(bytes(data[start:end])) for start, end in pairwise([*starts, reached])]
