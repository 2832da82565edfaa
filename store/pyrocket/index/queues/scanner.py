"""Reads a range of one queue, of any length, as slices.

A slice lies within one log file and one window, and has about SLICE_BYTES of records or SLICE_ROWS
rows. A tag filter selects entries by their tags codes before records are read. If few entries
remain, far apart in the log, their records are read one by one.

A few messages of each of many queues are one slice (`slice_of_runs`): its fixed cost is paid once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyrocket.errors import (
    REBUILD_QUEUES,
    VERIFY_FIRST,
    OffsetOutOfRangeError,
    PyrocketError,
    RecordDamagedError,
    StoreDamagedError,
)
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_columns import SEVERAL_QUEUES
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.missing_files import no_entry, no_log_file
from pyrocket.index.queues.record_fetch import WINDOW_BYTES, read_sparse, records_at
from pyrocket.log.commit_log import CommitLog
from pyrocket.values.lookup import MessageLocations
from pyrocket.values.message import MessageQueue, StoredMessage

SLICE_BYTES = 8 * 1024 * 1024
SLICE_ROWS = 16_384
_SELECTIVE_FACTOR = 8
"""Factor for the number of entries per read if a filter selects by tags codes."""


@dataclass(frozen=True)
class _Positions:
    """Log positions of the messages at `queue_offsets`, selected from `entries` entries."""

    entries: int
    queue_offsets: Ints
    offsets: Ints
    sizes: Ints
    tags_codes: Ints

    def part(self, rows: slice) -> "_Positions":
        arrays = (self.queue_offsets, self.offsets, self.sizes, self.tags_codes)
        return _Positions(self.entries, *(array[rows] for array in arrays))


_SPARSE_BYTES = 32 * 1024
"""If there are more bytes of the log per record, reading each record is cheaper than mapping."""

_DENSE_SHARE = 4
"""If the records fill more than a quarter of their log range, the range is mapped."""


class Scanner:
    """Reads ranges of queues. Between slices it only keeps the last window of the log."""

    slice_rows, entries_at_once = SLICE_ROWS, 65_536

    def __init__(
        self, log: CommitLog, broker_name: str = "", settle: Callable[[], None] = lambda: None
    ) -> None:
        """`settle` waits until no recovery is in progress."""
        self._log, self._broker_name, self._settle = log, broker_name, settle

    def scan(
        self,
        queue: ConsumeQueue,
        start: int,
        end: int,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
        in_place: bool = False,
    ) -> Iterator[RecordSlice]:
        """Yield the messages of `queue` in [start, end) that match `where`.

        No slice is empty. With `in_place`, buffers have the layout of the log. Raises
        OffsetOutOfRangeError if entries or records were deleted, and StoreDamagedError.
        """
        place = MessageQueue(queue.topic, self._broker_name, queue.queue_id)
        where, tally = where or EVERYTHING, tally or ScanTally()
        while start < end:
            positions = self._positions(queue, start, end, where)
            after = start + positions.entries
            sparse = not in_place and is_sparse(positions.offsets, positions.sizes)
            cuts = _cut(
                positions.offsets,
                positions.sizes,
                0 if sparse else self._log.file_bytes,
                self.slice_rows,
            )
            for piece in map(positions.part, cuts):
                first, last = int(piece.queue_offsets[0]), int(piece.queue_offsets[-1])
                tally.entries += first - start
                records = self._open(queue, piece, sparse=sparse)
                records.check_places(queue.topic, queue.queue_id, piece.queue_offsets)
                part = matching(RecordSlice(place, records, piece.tags_codes), where)
                tally.messages += len(part.records)
                if len(part.records):
                    yield part
                start = last + 1
                tally.entries += start - first
                tally.records += len(piece.offsets)
            tally.entries += after - start
            start = after

    def _positions(
        self, queue: ConsumeQueue, start: int, end: int, where: MessageFilter
    ) -> _Positions:
        """Return the positions of the first messages of [start, end) that may match `where`."""
        try:
            return self._positions_now(queue, start, end, where)
        except (OffsetOutOfRangeError, StoreDamagedError):
            # A recovery may have been rewriting the queues.
            self._settle()
            return self._positions_now(queue, start, end, where)

    def _positions_now(
        self, queue: ConsumeQueue, start: int, end: int, where: MessageFilter
    ) -> _Positions:
        is_selective = where.narrows(queue.topic)
        count = self.entries_at_once * (_SELECTIVE_FACTOR if is_selective else 1)
        entries = queue.entries(start, min(end, start + count))
        self._check_present(queue, start, entries, end)
        queue_offsets = np.arange(start, start + len(entries))
        count = len(entries)
        if is_selective:
            chosen = where.may_match(queue.topic, entries["tags_code"].astype(np.int64))
            entries, queue_offsets = entries[chosen], queue_offsets[chosen]
        positions = _Positions(
            entries=count,
            queue_offsets=queue_offsets,
            offsets=entries["physical_offset"].astype(np.int64),
            sizes=entries["size"].astype(np.int64),
            tags_codes=entries["tags_code"].astype(np.int64),
        )
        self._check_usable(queue, positions)
        return positions

    def _check_present(self, queue: ConsumeQueue, start: int, entries: Entries, end: int) -> None:
        sizes = entries["size"]
        if len(entries) and sizes.all():
            return
        at = start + (int(np.argmin(sizes != 0)) if len(entries) else 0)
        if error := no_entry(queue, at):
            raise error
        raise OffsetOutOfRangeError(
            f"queue {queue.queue_id} of {queue.topic!r} has no message at offset {at}, before"
            f" {end}.",
            remedy="It was deleted, or the offsets belong to another store;"
            " `pyrocket verify` shows whether the queue is damaged.",
        )

    def _check_usable(self, queue: ConsumeQueue, found: _Positions) -> None:
        """Check that the entries are ascending and none is longer than a window."""
        offsets, sizes = found.offsets, found.sizes
        good = (sizes >= FIXED_BYTES) & (sizes <= WINDOW_BYTES)
        good &= (offsets >= 0) & (offsets < 2**63 - WINDOW_BYTES)
        good[1:] &= offsets[1:] >= offsets[:-1] + sizes[:-1]
        if good.all():
            return
        at = int(np.argmin(good))
        raise StoreDamagedError(
            f"queue {queue.queue_id} of {queue.topic!r} has an invalid entry at offset"
            f" {found.queue_offsets[at]}: log offset {offsets[at]}, size {sizes[at]}.",
            remedy=REBUILD_QUEUES,
        )

    def _open(self, queue: ConsumeQueue, found: _Positions, *, sparse: bool) -> RecordFields:
        offsets, sizes = found.offsets, found.sizes
        file_bytes, low = self._log.file_bytes, int(offsets[0])
        where = f"offset {found.queue_offsets[0]} of queue {queue.queue_id} of {queue.topic!r}"
        end = int(offsets[-1] + sizes[-1])
        # Most slices lie in one file.
        if end > self._log.file_end(low) and (offsets % file_bytes + sizes > file_bytes).any():
            raise StoreDamagedError(
                f"a queue entry at or after {where} crosses the end of a log file.",
                remedy=REBUILD_QUEUES,
            )
        try:
            if sparse:
                return read_sparse(self._log, offsets, sizes)
            buffer, base = self._log.window(low, end - low)
        except FileNotFoundError:
            raise self._missing_file_error(queue, found) from None
        return RecordFields(buffer, base, offsets - base, sizes, self._log.sealed)

    def _missing_file_error(self, queue: ConsumeQueue, found: _Positions) -> PyrocketError:
        """Return the error for the first of these messages whose log file is missing."""
        starts = self._log.run.starts()
        there = np.isin(found.offsets - found.offsets % self._log.file_bytes, starts)
        row = int(np.argmin(there))
        at = f"offset {found.queue_offsets[row]} of queue {queue.queue_id} of {queue.topic!r}"
        return no_log_file(self._log.run, int(found.offsets[row]), at)


def matching(part: RecordSlice, where: MessageFilter) -> RecordSlice:
    """Return the messages of a slice that match the filter by their properties."""
    if where.wants_all or not len(part.records):
        return part
    rows = where.matching(part.records.property_columns, len(part.records))
    return part if rows.all() else part.part(rows)


def read_messages(log: CommitLog, queue: ConsumeQueue, start: int, end: int) -> list[StoredMessage]:
    """Return the messages [start, end) of `queue`. Raises the same errors as `Scanner.scan`."""
    entries = queue.entries(start, end)
    next_offset = start + len(entries)
    if next_offset < end:
        raise no_entry(queue, next_offset) or StoreDamagedError(
            f"queue {queue.queue_id} of {queue.topic!r} has entries up to {next_offset}, but ends"
            f" at {end}.",
            remedy=REBUILD_QUEUES,
        )
    return [_message(log, queue, start + row, entry) for row, entry in enumerate(entries)]


def _message(log: CommitLog, queue: ConsumeQueue, offset: int, entry: np.void) -> StoredMessage:
    """Return the message that an entry points to, after a check that it is the one at `offset`."""
    where = f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    try:
        if entry["physical_offset"] < 0 or not FIXED_BYTES <= entry["size"] <= log.file_bytes:
            raise StoreDamagedError("its entry points outside the log.", remedy=REBUILD_QUEUES)
        position = int(entry["physical_offset"]), int(entry["size"])
        record = decode_record(log.read(*position), sealed=log.sealed())
        if (record.topic, record.queue_id, record.queue_offset) != (
            queue.topic,
            queue.queue_id,
            offset,
        ):
            raise StoreDamagedError("its entry points to another message.")
        if (record.physical_offset, record.size) != position:
            raise StoreDamagedError("its record has a different offset or size than its entry.")
        return record.to_message()
    except FileNotFoundError:
        raise no_log_file(log.run, int(entry["physical_offset"]), where) from None
    except StoreDamagedError as error:
        remedy = error.remedy or VERIFY_FIRST
        raise RecordDamagedError(f"{where}: {error.message}", remedy=remedy) from error


def _cut(offsets: Ints, sizes: Ints, file_bytes: int, max_rows: int) -> Iterator[slice]:
    """Yield the rows of each slice; a slice lies in one window unless `file_bytes` is 0."""
    ends = offsets + sizes
    totals = np.cumsum(sizes)
    first = 0
    while first < len(offsets):
        before = int(totals[first - 1]) if first else 0
        last = int(np.searchsorted(totals, before + SLICE_BYTES, side="right"))
        if file_bytes:
            start = int(offsets[first])
            reach = min(start + WINDOW_BYTES, start - start % file_bytes + file_bytes)
            last = min(last, int(np.searchsorted(ends, reach, side="right")))
        last = max(min(last, first + max_rows), first + 1)
        yield slice(first, last)
        first = last


Run = tuple[ConsumeQueue, int, int]
"""A queue, and the range [start, end) of its messages."""


def slice_of_runs(
    log: CommitLog, runs: Sequence[Run], broker_name: str, where: MessageFilter, tally: ScanTally
) -> RecordSlice | None:
    """Return the messages that match `where` as one slice that is decoded in range order.

    Returns None if the messages exceed a slice or cannot be read. The caller then scans each range
    separately, which raises the error for messages that cannot be read.
    """
    entries = _entries(runs)
    if entries is None:
        return None
    topic, codes = runs[0][0].topic, entries["tags_code"].astype(np.int64)
    queue_ids = np.repeat([queue.queue_id for queue, _, _ in runs], [b - a for _, a, b in runs])
    queue_offsets = np.concatenate([np.arange(start, end) for _, start, end in runs])
    rows = np.flatnonzero(where.may_match(topic, codes))
    # In log order, which differs from the order of the queues.
    rows = rows[np.argsort(entries["physical_offset"][rows], kind="stable")]
    try:
        records = _records(log, entries[rows])
        records.check_places(topic, queue_ids[rows], queue_offsets[rows])
    except (PyrocketError, FileNotFoundError):
        return None
    kept_rows = rows
    if len(rows) and not where.wants_all:
        kept = where.matching(records.property_columns, len(rows))
        records, kept_rows = records.part(kept), rows[kept]
    tally.add(ScanTally(len(entries), len(rows), len(kept_rows)))
    queue = MessageQueue(topic, broker_name, SEVERAL_QUEUES)
    return RecordSlice(queue, records, codes[kept_rows], np.argsort(kept_rows))


def _entries(runs: Sequence[Run]) -> Entries | None:
    """Return the entries of all messages; None if one is missing or there are too many."""
    parts = [queue.entries(start, end) for queue, start, end in runs]
    if any(len(part) < end - start for part, (_, start, end) in zip(parts, runs, strict=True)):
        return None
    entries = np.concatenate(parts)
    sizes = entries["size"].astype(np.int64)
    if (sizes < FIXED_BYTES).any() or sizes.sum() > SLICE_BYTES or len(sizes) > SLICE_ROWS:
        return None
    return entries


def _records(log: CommitLog, entries: Entries) -> RecordFields:
    """Return the records of entries in log order. Raises StoreDamagedError, FileNotFoundError."""
    offsets = entries["physical_offset"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    ends = offsets + sizes
    if (offsets < 0).any() or (offsets[1:] < ends[:-1]).any() or (ends < offsets).any():
        raise StoreDamagedError("the queue entries overlap.")
    if not len(offsets):
        return RecordFields(pa.py_buffer(b""), 0, offsets, sizes)
    return read_sparse(log, offsets, sizes)


def slices_at(
    log: CommitLog,
    locations: MessageLocations,
    broker_name: str,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[RecordSlice]:
    """Yield the messages at the locations that match `where`, in order.

    Raises OffsetOutOfRangeError if their log file was deleted, StoreDamagedError.
    """
    queue = MessageQueue(locations.topic, broker_name, locations.queue_id)
    wanted, offsets = locations.log_positions, locations.queue_offsets
    seen = 0
    for rows, records in records_at(log, wanted, np.frombuffer(locations.sizes, np.int64)):
        present = rows == np.arange(seen, seen + len(rows))
        if not present.all():
            raise _missing(log, locations, seen + int(np.argmin(present)))
        seen += len(rows)
        records.check_places(locations.topic, locations.queue_id, offsets[rows])
        for start in range(0, len(rows), SLICE_ROWS):
            all_of_it = RecordSlice(queue, records.part(slice(start, start + SLICE_ROWS)))
            part, count = matching(all_of_it, where), len(all_of_it)
            tally.messages += len(part)
            if len(part):
                yield part
            tally.entries, tally.records = tally.entries + count, tally.records + count
    if seen < len(wanted):
        raise _missing(log, locations, seen)


def _missing(log: CommitLog, locations: MessageLocations, row: int) -> PyrocketError:
    """Return the error about a message that is not at its location."""
    at, offset = int(locations.log_positions[row]), int(locations.queue_offsets[row])
    where = (
        f"offset {offset} of queue {locations.queue_id} of {locations.topic!r} (log offset {at})"
    )
    if at < log.first_offset():
        return OffsetOutOfRangeError(
            f"the log file with {where} has expired.", remedy="Look the messages up again."
        )
    return StoreDamagedError(
        f"corrupt record at {where}: there is no complete record.",
        remedy="Restore the log file from a backup.",
    )


def is_sparse(offsets: Ints, sizes: Ints) -> bool:
    """Whether the records at these ascending log offsets are better read one by one."""
    if not len(offsets):
        return False
    stretch = int(offsets[-1] + sizes[-1] - offsets[0])
    return stretch > _SPARSE_BYTES * len(offsets) and stretch > _DENSE_SHARE * int(sizes.sum())
