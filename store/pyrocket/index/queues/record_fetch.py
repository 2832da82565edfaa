"""Reads records that are scattered over the log.

`read_sparse` copies the records that queue entries point to into one buffer. `records_at` reads
positions that may be wrong, and omits positions without a complete record.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.disk.file_queue import read_ranges
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, binary_runs, gather, run_offsets
from pyrocket.formats.record import FIXED_BYTES, HEADER, HEADER_BYTES, MAGIC_V1, MAGIC_V2
from pyrocket.formats.record_fields import RecordFields
from pyrocket.log.commit_log import CommitLog

_Rows = npt.NDArray[np.int64]

WINDOW_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of the log that are mapped at a time; no record is longer."""

_MAX_GAP = 4096
"""A gap of at most this many bytes between two records is read instead of skipped."""


def read_sparse(log: CommitLog, offsets: Ints, sizes: Ints) -> RecordFields:
    """Return the records at these ascending log offsets, each within one file, in one buffer.

    The records are not checked. Raises FileNotFoundError, StoreDamagedError.
    """
    ends = offsets + sizes
    is_apart = offsets[1:] - ends[:-1] > _MAX_GAP
    is_apart |= np.diff(offsets // log.file_bytes) > 0
    firsts, lasts = np.append(True, is_apart), np.append(is_apart, True)
    starts, lengths = offsets[firsts], ends[lasts] - offsets[firsts]
    data = read_ranges(log.run, list(zip(starts.tolist(), lengths.tolist(), strict=True)))
    if len(data) < lengths.sum():
        raise StoreDamagedError(
            "queue entries point to a record beyond the end of its log file, at or after log"
            f" offset {int(offsets[0])}.",
            remedy="Restore it from a backup: log files never change their length.",
        )
    piece = np.cumsum(firsts) - 1
    before = np.cumsum(lengths) - lengths
    at = offsets + (before - starts)[piece]
    return RecordFields(pa.py_buffer(data), offsets - at, at, sizes, log.sealed)


def records_at(log: CommitLog, offsets: Ints, sizes: Ints) -> Iterator[tuple[_Rows, RecordFields]]:
    """Yield the records at ascending log offsets, one window of the log at a time.

    Each window's records are yielded with their row numbers. Corrupt and missing records are
    omitted.
    """
    rows = np.flatnonzero((sizes >= FIXED_BYTES) & (sizes <= WINDOW_BYTES) & (offsets >= 0))
    ends = (offsets + sizes)[rows]
    first = 0
    while first < len(rows):
        start = int(offsets[rows[first]])
        reach = min(start + WINDOW_BYTES, log.file_end(start))
        last = max(int(np.searchsorted(ends, reach, side="right")), first + 1)
        yield from _read(log, offsets, sizes, rows[first:last])
        first = last


def _read(
    log: CommitLog, offsets: Ints, sizes: Ints, rows: _Rows
) -> Iterator[tuple[_Rows, RecordFields]]:
    """Yield the records of one window. A window with an invalid record is split into halves."""
    low, end = int(offsets[rows[0]]), int(offsets[rows[-1]] + sizes[rows[-1]])
    try:
        if not low < end <= min(log.file_end(low), low + WINDOW_BYTES):
            raise StoreDamagedError("these positions do not lie in one window of the log.")
        buffer, base = log.filled_window(low, end - low)
        fields = RecordFields(buffer, base, offsets[rows] - base, sizes[rows], log.sealed)
        fields.check_structure()
    except (FileNotFoundError, StoreDamagedError):
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]) if middle else ():
            yield from _read(log, offsets, sizes, half)
    else:
        yield rows, fields


@dataclass(frozen=True)
class Scattered:
    """Complete records, as in the log; `at` has each record's row in the requested positions."""

    raw: pa.BinaryArray
    at: _Rows

    def fields(self, order: Ints | None = None) -> RecordFields:
        """Return the records, in that order, joined in one buffer.

        Their `physical_offset` is a position in that buffer, not in the log.
        """
        raw = self.raw
        if order is not None and not np.array_equal(order, np.arange(len(raw))):
            raw = raw.take(pa.array(order))
        bounds = run_offsets(raw).astype(np.int64)
        return RecordFields(raw.buffers()[2] or pa.py_buffer(b""), 0, bounds[:-1], np.diff(bounds))


def read_scattered(log: CommitLog, offsets: Ints, sizes: Ints) -> Scattered:
    """Return the records at ascending positions in one buffer; see `records_at`."""
    parts, rows = [pa.array([], pa.binary())], [np.zeros(0, np.int64)]
    for numbers, records in records_at(log, offsets, sizes):
        parts.append(binary_runs(records.buffer, records.starts, records.starts + records.sizes))
        rows.append(numbers)
    return Scattered(pa.concat_arrays(parts), np.concatenate(rows))


def sizes_at(log: CommitLog, offsets: Ints, bound: int) -> _Rows:
    """Return the size of the record at each of these ascending offsets.

    The size is 0 if no record begins there, or if the record is longer than a window or ends after
    `bound`.
    """
    sizes = np.zeros(len(offsets), np.int64)
    first = int(np.searchsorted(offsets, 0))
    while first < len(offsets):
        start = int(offsets[first])
        reach = min(start + WINDOW_BYTES, log.file_end(start), bound)
        last = max(int(np.searchsorted(offsets, reach - HEADER_BYTES, side="right")), first + 1)
        if start + HEADER_BYTES <= reach:
            sizes[first:last] = _sizes_in(log, offsets[first:last])
        first = last
    file_ends = offsets - offsets % log.file_bytes + log.file_bytes
    fits = (sizes <= WINDOW_BYTES) & (offsets + sizes <= np.minimum(bound, file_ends))
    return np.where(fits, sizes, 0)


def _sizes_in(log: CommitLog, offsets: Ints) -> _Rows:
    """Return the sizes as `sizes_at` does, for offsets in one window."""
    start, end = int(offsets[0]), int(offsets[-1]) + HEADER_BYTES
    try:
        buffer, base = log.filled_window(start, end - start)
    except FileNotFoundError:
        return np.zeros(len(offsets), np.int64)
    raw = gather(np.frombuffer(buffer, np.uint8), offsets - base, f"V{HEADER_BYTES}")
    headers = raw.view(HEADER)
    begins = np.isin(headers["magic"], (MAGIC_V1, MAGIC_V2)) & (headers["size"] >= FIXED_BYTES)
    begins &= headers["physical_offset"] == offsets
    return np.where(begins, headers["size"].astype(np.int64), 0)
