"""The records of pulls as slices, which are decoded to columns like those of a store."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from pyrocket.errors import PyrocketError, RecordDamagedError, UnsupportedError
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record import follow
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.pulls import PullSettings, Window, windows
from pyrocket.values.message import MessageQueue, QueueRange

_SLICE_BYTES = 1 << 20
"""Windows are joined to slices of this size, because each slice has a fixed cost."""

_INNER_BATCH = 0x80
"""The system flag of a record with several messages: `MessageSysFlag.INNER_BATCH_FLAG`."""


def read_range(
    server: ConnectionPool,
    part: QueueRange,
    settings: PullSettings,
    *,
    where: MessageFilter = EVERYTHING,
    tally: ScanTally | None = None,
) -> Iterator[RecordSlice]:
    """Yield the messages of a range that match `where`, in order, in slices of about 1 MiB.

    tally: Counts the messages that were examined before each slice, so that a caller can resume
        after a TransportError. Messages that the queue does not have, for example after a
        compaction, count as examined.

    Raises the errors of `windows`, RecordDamagedError, UnsupportedError (UNSUPPORTED_RECORD).
    """
    tally = tally or ScanTally()
    with closing(windows(server, part, settings)) as parts:
        for joined in _joined(parts):
            examined = joined[-1].end - joined[0].start
            fields = selected(record_fields(part.queue, joined), where, tally, examined)
            if len(fields):
                yield RecordSlice(part.queue, fields)


def selected(
    fields: RecordFields, where: MessageFilter, tally: ScanTally, examined: int
) -> RecordFields:
    """Return the records that match `where`; count them, and the messages that were examined."""
    chosen = fields
    if len(fields) and not where.wants_all:
        chosen = fields.part(where.matching(fields.property_columns, len(fields)))
    tally.add(ScanTally(examined, len(fields), len(chosen)))
    return chosen


def _joined(parts: Iterable[Window]) -> Iterator[list[Window]]:
    """Yield consecutive windows that have about `_SLICE_BYTES` together; all before an error."""
    joined, size = list[Window](), 0
    try:
        for window in parts:
            joined.append(window)
            size += sum(map(len, window.records))
            if size >= _SLICE_BYTES:
                yield joined
                joined, size = [], 0
    except PyrocketError:
        if joined:
            yield joined
        raise
    if joined:
        yield joined


def record_fields(queue: MessageQueue, joined: Sequence[Window]) -> RecordFields:
    """Return the records of consecutive windows of a queue, checked.

    Raises RecordDamagedError, and UnsupportedError (UNSUPPORTED_RECORD) for an inner batch.
    """
    content = b"".join(record for window in joined for record in window.records)
    starts, reached = follow(memoryview(content), 0)
    bounds = np.array([*starts, reached])
    fields = RecordFields(pa.py_buffer(content), 0, bounds[:-1], np.diff(bounds))
    fields.base = fields.field("physical_offset") - fields.starts
    if reached != len(content):
        raise _damaged(queue, f"there is no record after {len(starts)} records")
    try:
        _check(fields, queue)
    except RecordDamagedError as error:
        raise _damaged(queue, error.message.rstrip(".")) from error
    offsets, (starts, ends, reached) = fields.queue_offset, _bounds(fields, joined)
    inside = (offsets >= starts) & (offsets < ends)
    kept = fields if inside.all() else fields.part(inside)
    is_of_window = (offsets >= starts) & (offsets < np.maximum(ends, reached))
    if not is_of_window.all() or (np.diff(kept.queue_offset, prepend=-1) <= 0).any():
        raise _damaged(queue, "their queue offsets were not requested, or not ascending")
    return kept


def _bounds(fields: RecordFields, joined: Sequence[Window]) -> Ints:
    """Return start, end and reached offset of the window of each record (shape: 3, records).

    With tags, an answer can reach beyond its window; these messages are also in the next one.
    """
    sizes = [sum(map(len, window.records)) for window in joined]
    window_of = np.searchsorted(np.cumsum(sizes), fields.starts, "right")
    return np.array([(window.start, window.end, window.at) for window in joined])[window_of].T


def _damaged(queue: MessageQueue, reason: str) -> RecordDamagedError:
    return RecordDamagedError(
        f"the broker {queue.broker} has sent bytes for {queue} that are no records: {reason}.",
        remedy="Pull again; if it fails again, check the files of the broker, and its slave.",
    )


def _check(fields: RecordFields, queue: MessageQueue) -> None:
    offsets = fields.queue_offset
    batches = (fields.sys_flag & _INNER_BATCH) != 0
    if batches.any():
        raise UnsupportedError(
            f"the message {offsets[int(np.argmax(batches))]} of {queue} of the broker"
            f" {queue.broker} contains a batch: the topic has `queue.type` BatchCQ.",
            remedy="Read a topic without this attribute.",
            code="UNSUPPORTED_RECORD",
        )
    fields.check_places(queue.topic, queue.queue_id, offsets)
