"""The view `commitlog`: every record of the log, in log order, with or without a queue entry.

It includes half messages and their decisions, scheduled messages, and messages of deleted topics.
Each record is checked, including its body. The view ends at the log's end in the shared state or,
without a valid shared state, after the last complete record.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from pyrocket.engine.parts.key_lookup import is_among
from pyrocket.engine.reader import Reader
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.arrow_buffers import to_text
from pyrocket.formats.record import BLANK_BYTES
from pyrocket.formats.record_columns import SCAN_COLUMNS, SEVERAL_QUEUES
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice, decode_with
from pyrocket.index.queues.dispatcher import WHOLE_LOG
from pyrocket.index.queues.scanner import SLICE_ROWS
from pyrocket.log.salvage import LogCheck
from pyrocket.values.message import MessageQueue
from pyrocket.values.source import LogPart
from pyrocket.views.pending import IN_QUEUE, VIEW_COLUMNS

_log = logging.getLogger(__name__)

_COLUMNS = VIEW_COLUMNS["commitlog"]


def log_parts(reader: Reader, topics: tuple[str, ...], *, skips_damage: bool) -> list[LogPart]:
    """Return the files of the log, in order; each can be read independently."""
    log, end = reader.log, reader.log_end()
    starts = log.run.starts()
    # A broker creates the next file before it is needed.
    while end == WHOLE_LOG and starts and not any(log.read(starts[-1], BLANK_BYTES)):
        starts.pop()
    return [
        LogPart(
            start,
            min(start + log.file_bytes, end),
            end != WHOLE_LOG or start != starts[-1],
            topics,
            skips_damage,
        )
        for start in starts
        if start < end
    ]


def read_log(reader: Reader, part: LogPart, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part as columns.

    Raises StoreDamagedError at a corrupt record, unless the part skips damage, and
    OffsetOutOfRangeError if its log file has been deleted.
    """
    return decode_with(partial(_build_batch, reader, columns=columns), _slices(reader, part))


def _slices(reader: Reader, part: LogPart) -> Iterator[RecordSlice]:
    check = LogCheck(reader.log, lambda count, name: None, end_is_known=part.is_whole)
    queue = MessageQueue("", reader.identity.config.broker_name, SEVERAL_QUEUES)
    reported = 0
    for run in check.runs(part.start, part.end):
        reported = _report(reader, part, check, reported)
        for start in range(0, len(run), SLICE_ROWS):
            records = run.part(slice(start, start + SLICE_ROWS))
            if part.topics:
                records = records.part(is_among(to_text(records.topics), part.topics))
            yield RecordSlice(queue, records)
    _report(reader, part, check, reported, at_end=True)


def _report(
    reader: Reader, part: LogPart, check: LogCheck, reported: int, *, at_end: bool = False
) -> int:
    """Raise an error for the next corrupt range, or log all new ones.

    The first `reported` ranges are skipped. Returns the number of corrupt ranges.
    """
    for place in check.bad[reported:]:
        if part.start < reader.log.first_offset():
            raise OffsetOutOfRangeError(
                f"the log file with start offset {part.start} was deleted by cleaning.",
                remedy="Plan the view again.",
            )
        what = f"log offsets {place.start} to {place.end} have no valid record: {place.reason}"
        # No record follows: the next recovery truncates the range.
        is_torn_end = at_end and not part.is_whole and place.start >= check.end
        if not part.skips_damage and not is_torn_end:
            raise StoreDamagedError(
                f"corrupt log: {what}",
                remedy="Restore the file from a backup, or skip corrupt records.",
                code="LOG_DAMAGED",
            )
        _log.warning("skipped: %s", what)
    return len(check.bad)


def _build_batch(reader: Reader, part: RecordSlice, columns: Sequence[str]) -> pa.RecordBatch:
    plain = [name for name in columns if name in SCAN_COLUMNS] or ["physicalOffset"]
    batch = part.build(plain)
    records = part.records.head(batch.num_rows)
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "topic" in columns:
        arrays["topic"] = to_text(records.topics)
    if IN_QUEUE in columns:
        arrays[IN_QUEUE] = _in_queue(reader, records)
    schema = pa.schema([(name, _COLUMNS[name]) for name in columns])
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)


def _in_queue(reader: Reader, fields: RecordFields) -> pa.BooleanArray:
    """Return for each record whether its queue has an entry that is dispatched."""
    mask = np.zeros(len(fields), bool)
    bound = reader.bound()
    for (topic, queue_id), rows in fields.by_queue:
        offsets = fields.queue_offset[rows]
        order = np.argsort(offsets, kind="stable")
        rows, offsets = rows[order], offsets[order]
        kept = offsets >= 0
        rows, offsets = rows[kept], offsets[kept]
        at = fields.physical_offset[rows]
        mask[rows] = (reader.log_offsets_at(topic, queue_id, offsets) == at) & (at < bound)
    return pa.array(mask)
