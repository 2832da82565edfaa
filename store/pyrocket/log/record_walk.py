"""Walks the log record by record, for recovery and for rolling forward.

Only sizes and magic numbers are read one record at a time; all other fields are read in columns
(`RecordFields`). The last record is followed by a hole, which must not be touched in a mapping.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record import (
    BLANK_BYTES,
    FIXED_BYTES,
    HEADER_BYTES,
    HOST_V6_EXTRA,
    follow,
    read_header,
)
from pyrocket.formats.record_fields import RecordFields
from pyrocket.log.commit_log import CommitLog

WINDOW_BYTES = 16 * 1024 * 1024
_HEAD_BYTES = HEADER_BYTES + 2 * HOST_V6_EXTRA
_MAX_BESIDE_BODY = 1 << 17
"""Upper bound for the size of header, topic and properties of a record."""


def walk(log: CommitLog, start: int, end: int) -> Iterator[RecordFields]:
    """Yield the records in [start, end) in runs, up to the first position without a record.

    The walk stops at `end_of` the last run. Only sizes and magic numbers are checked.
    """
    position = start
    while position < end:
        file_end = log.file_end(position)
        run, blank = run_at(log, position, min(end, file_end))
        if run is not None:
            yield run
            position = end_of(run)
        elif not blank:
            return
        if blank:
            position = file_end


def walk_all(log: CommitLog, start: int, end: int) -> Iterator[RecordFields]:
    """Yield all records in [start, end). Raises StoreDamagedError if a record is missing."""
    reached = start
    for run in walk(log, start, end):
        yield run
        reached = end_of(run)
    if reached != end:
        raise record_missing(reached, end)


def record_missing(reached: int, end: int) -> StoreDamagedError:
    """Return the error for a log that has no record at `reached`, before its end."""
    return StoreDamagedError(
        f"corrupt log: it ends at {end}, but there is no record at {reached}.",
        remedy="Restore the log from a backup.",
    )


def end_of(run: RecordFields) -> int:
    """Return the log offset after the last record of a run."""
    return int(run.base + run.starts[-1] + run.sizes[-1])


def run_at(log: CommitLog, position: int, end: int) -> tuple[RecordFields | None, bool]:
    """Return the records in one window from `position` on, and whether a blank record follows."""
    try:
        buffer, base = _filled(log, position, min(WINDOW_BYTES, end - position))
    except FileNotFoundError:
        return None, False
    view = memoryview(buffer)
    starts, at = follow(view, position - base)
    header = read_header(view, at) if at + BLANK_BYTES <= len(view) else None
    blank = header is not None and header.is_blank
    if starts:
        bounds = np.array([*starts, at])
        return RecordFields(buffer, base, bounds[:-1], np.diff(bounds), log.sealed), blank
    if header is None or blank or len(view) >= end - base:
        return None, blank
    # The record is longer than the window, or the window ends at a hole in it (a body of zeros).
    is_long = header.is_message and FIXED_BYTES <= header.size <= end - position
    return (_single(log, position, header.size) if is_long else None), False


def _single(log: CommitLog, position: int, size: int) -> RecordFields | None:
    """Return the record at `position`, which is longer than a window; None if its size is wrong.

    A wrong size may reach far beyond the log's end. It is detected by the length of the body.
    """
    head = log.read(position, _HEAD_BYTES)
    if len(head) < _HEAD_BYTES or not read_header(head).is_message:
        return None
    record = RecordFields(pa.py_buffer(head), position, np.array([0]), np.array([size]))
    if size - int(record.body_length[0]) > _MAX_BESIDE_BODY:
        return None
    buffer, base = log.filled_window(position, size)
    return RecordFields(buffer, base, np.array([position - base]), np.array([size]), log.sealed)


def _filled(log: CommitLog, position: int, size: int) -> tuple[pa.Buffer, int]:
    """Return the bytes from `position` to the next hole, at most `size`, and their log offset.

    At a hole this returns enough of its bytes for a record header.
    """
    filled = log.run.filled(position, size)
    if filled:
        return log.window(position, filled)
    return pa.py_buffer(log.read(position, min(size, FIXED_BYTES))), position
