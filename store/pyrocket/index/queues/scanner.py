"""A run of one queue as Arrow batches, a few MiB at a time, whatever the run's length.

The queue's entries cut the run into slices: within one log file, within a window, and about
SLICE_BYTES of records or SLICE_ROWS rows each. A slice is decoded and let go before the next.

With a filter, the entries' tags codes tell which records are looked at in the log at all; few of
them, far from each other, are read piece by piece. Of those, properties are decoded first, and the
other columns for the messages that are wanted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pyrocket.errors import (
    REBUILD_QUEUES,
    VERIFY_FIRST,
    OffsetOutOfRangeError,
    PyrocketError,
    RecordDamagedError,
    StoreDamagedError,
)
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_columns import QueueRun
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.lost_files import no_entry, no_log_file
from pyrocket.index.queues.sparse import lie_apart, read_apart
from pyrocket.log.commit_log import CommitLog
from pyrocket.message import StoredMessage

SLICE_BYTES = 8 * 1024 * 1024
SLICE_ROWS = 16_384
WINDOW_BYTES = 64 * 1024 * 1024
_ENTRIES_AT_ONCE = 65_536
_FEW_OF = 8
"""So many times more entries are looked at where only those with some tags count."""

_EVERYTHING = MessageFilter()


@dataclass(frozen=True)
class Slice:
    """Messages of one queue from `first_offset` on, as raw records, with their tags codes."""

    first_offset: int
    tags_codes: Ints
    records: RecordFields


@dataclass(frozen=True)
class _Places:
    """Where records of a queue lie: those at `queue_offsets`, chosen from the next `entries`."""

    entries: int
    queue_offsets: Ints
    offsets: Ints
    sizes: Ints
    tags_codes: Ints

    def part(self, rows: slice) -> "_Places":
        """Return some of them."""
        arrays = (self.queue_offsets, self.offsets, self.sizes, self.tags_codes)
        return _Places(self.entries, *(array[rows] for array in arrays))


class Scanner:
    """Reads runs of queues. Between slices only the log's last window is kept."""

    def __init__(
        self, log: CommitLog, broker_name: str, settle: Callable[[], None] = lambda: None
    ) -> None:
        self._log, self._broker_name, self._settle = log, broker_name, settle

    def slices(
        self,
        queue: ConsumeQueue,
        start: int,
        end: int,
        *,
        where: MessageFilter | None = None,
        tally: ScanTally | None = None,
    ) -> Iterator[RecordSlice]:
        """Yield the messages [start, end) that `where` wants as raw records.

        Raises OffsetOutOfRangeError where entries or their records are gone, StoreDamagedError.
        """
        run = QueueRun(queue.topic, self._broker_name, queue.queue_id, start)
        where, tally = where or _EVERYTHING, tally or ScanTally()
        for _, fields in self._slices(queue, start, end, where, tally):
            wanted = records_wanted(fields, where)
            tally.messages += len(wanted)
            yield RecordSlice(run, wanted)

    def records(self, queue: ConsumeQueue, start: int, end: int) -> Iterator[Slice]:
        """Yield the messages [start, end) of `queue` as checked records; raises as `slices`."""
        slices = self._slices(queue, start, end, _EVERYTHING, ScanTally(), in_place=True)
        for codes, fields in slices:
            yield Slice(int(fields.queue_offset[0]), codes, fields)

    def _slices(
        self,
        queue: ConsumeQueue,
        start: int,
        end: int,
        where: MessageFilter,
        tally: ScanTally,
        *,
        in_place: bool = False,
    ) -> Iterator[tuple[Ints, RecordFields]]:
        """Yield tags codes and checked records of what `where` may want, slice by slice.

        With `in_place` they lie in the buffer as in the log.
        """
        while start < end:
            places = self._places(queue, start, end, where)
            behind = start + places.entries
            apart = not in_place and lie_apart(places.offsets, places.sizes)
            cut = _cut(places.offsets, places.sizes, 0 if apart else self._log.file_bytes)
            for some in map(places.part, cut):
                first, last = int(some.queue_offsets[0]), int(some.queue_offsets[-1])
                tally.entries += first - start
                fields = self._open(queue, some, apart=apart)
                fields.check_places(queue.topic, queue.queue_id, some.queue_offsets)
                yield some.tags_codes, fields
                start = last + 1
                tally.entries += start - first
                tally.records += len(some.offsets)
            tally.entries += behind - start
            start = behind

    def _places(self, queue: ConsumeQueue, start: int, end: int, where: MessageFilter) -> _Places:
        """Return where the first messages of [start, end) lie that `where` may want."""
        try:
            return self._places_now(queue, start, end, where)
        except (OffsetOutOfRangeError, StoreDamagedError):
            # A recovery rewrites the queues: what it leaves counts.
            self._settle()
            return self._places_now(queue, start, end, where)

    def _places_now(
        self, queue: ConsumeQueue, start: int, end: int, where: MessageFilter
    ) -> _Places:
        by_code = where.narrows(queue.topic)
        most = _ENTRIES_AT_ONCE * (_FEW_OF if by_code else 1)
        entries = queue.entries(start, min(end, start + most))
        self._check_present(queue, start, entries, end)
        at = np.arange(start, start + len(entries))
        count = len(entries)
        if by_code:
            chosen = where.may_match(queue.topic, entries["tags_code"].astype(np.int64))
            entries, at = entries[chosen], at[chosen]
        places = _Places(
            entries=count,
            queue_offsets=at,
            offsets=entries["physical_offset"].astype(np.int64),
            sizes=entries["size"].astype(np.int64),
            tags_codes=entries["tags_code"].astype(np.int64),
        )
        self._check_usable(queue, places)
        return places

    def _check_present(self, queue: ConsumeQueue, start: int, entries: Entries, end: int) -> None:
        sizes = entries["size"]
        if len(entries) and sizes.all():
            return
        at = start + (int(np.argmin(sizes != 0)) if len(entries) else 0)
        if gone := no_entry(queue, at):
            raise gone
        raise OffsetOutOfRangeError(
            f"queue {queue.queue_id} of {queue.topic!r} has no message at offset {at}, wanted up to"
            f" {end}.",
            remedy="It was deleted, or the store is not the one the offsets were taken from;"
            " `pyrocket verify` tells if the queue is damaged.",
        )

    def _check_usable(self, queue: ConsumeQueue, places: _Places) -> None:
        """Prove that the entries can be used as positions: ascending, none longer than a window."""
        offsets, sizes = places.offsets, places.sizes
        good = (sizes >= FIXED_BYTES) & (sizes <= WINDOW_BYTES)
        good &= (offsets >= 0) & (offsets < 2**63 - WINDOW_BYTES)
        good[1:] &= offsets[1:] >= offsets[:-1] + sizes[:-1]
        if good.all():
            return
        at = int(np.argmin(good))
        raise StoreDamagedError(
            f"queue {queue.queue_id} of {queue.topic!r} has a bad entry at offset"
            f" {places.queue_offsets[at]}: log offset {offsets[at]}, size {sizes[at]}.",
            remedy=REBUILD_QUEUES,
        )

    def _open(self, queue: ConsumeQueue, places: _Places, *, apart: bool) -> RecordFields:
        offsets, sizes = places.offsets, places.sizes
        file_bytes, low = self._log.file_bytes, int(offsets[0])
        where = f"offset {places.queue_offsets[0]} of queue {queue.queue_id} of {queue.topic!r}"
        end = int(offsets[-1] + sizes[-1])
        # Most slices lie in one file.
        if end > self._log.file_end(low) and (offsets % file_bytes + sizes > file_bytes).any():
            raise StoreDamagedError(
                f"a queue entry from {where} on runs over the end of a log file.",
                remedy=REBUILD_QUEUES,
            )
        try:
            if apart:
                return read_apart(self._log, offsets, sizes)
            buffer, base = self._log.window(low, end - low)
        except FileNotFoundError:
            raise self._file_gone(queue, places) from None
        return RecordFields(buffer, base, offsets - base, sizes, self._log.sealed)

    def _file_gone(self, queue: ConsumeQueue, places: _Places) -> PyrocketError:
        """Return the error about the first of these messages whose log file is not there."""
        starts = self._log.run.starts()
        there = np.isin(places.offsets - places.offsets % self._log.file_bytes, starts)
        row = int(np.argmin(there))
        at = f"offset {places.queue_offsets[row]} of queue {queue.queue_id} of {queue.topic!r}"
        return no_log_file(self._log.run, int(places.offsets[row]), at)


def records_wanted(records: RecordFields, where: MessageFilter) -> RecordFields:
    """Return the records that `where` wants."""
    if where.wants_all or not len(records):
        return records
    rows = where.matching(PropertyColumns(records.properties()), len(records))
    return records if rows.all() else records.part(rows)


def read_messages(log: CommitLog, queue: ConsumeQueue, start: int, end: int) -> list[StoredMessage]:
    """Return the messages [start, end) of `queue`, which has them; raises as `Scanner.slices`."""
    entries = queue.entries(start, end)
    behind = start + len(entries)
    if behind < end:
        raise no_entry(queue, behind) or StoreDamagedError(
            f"queue {queue.queue_id} of {queue.topic!r} has entries up to {behind}, not to its end"
            f" at {end}.",
            remedy=REBUILD_QUEUES,
        )
    return [_message(log, queue, start + row, entry) for row, entry in enumerate(entries)]


def _message(log: CommitLog, queue: ConsumeQueue, offset: int, entry: np.void) -> StoredMessage:
    """Return the message that an entry points to, checked to be the one at `offset`."""
    where = f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    try:
        if entry["physical_offset"] < 0 or not FIXED_BYTES <= entry["size"] <= log.file_bytes:
            raise StoreDamagedError("its entry is no place in the log.", remedy=REBUILD_QUEUES)
        where_to = int(entry["physical_offset"]), int(entry["size"])
        record = decode_record(log.read(*where_to), sealed=log.sealed())
        if (record.topic, record.queue_id, record.queue_offset) != (
            queue.topic,
            queue.queue_id,
            offset,
        ):
            raise StoreDamagedError("its entry points to another message.")
        if (record.physical_offset, record.size) != where_to:
            raise StoreDamagedError("its record names another place or size than its entry.")
        return record.to_message()
    except FileNotFoundError:
        raise no_log_file(log.run, int(entry["physical_offset"]), where) from None
    except StoreDamagedError as error:
        remedy = error.remedy or VERIFY_FIRST
        raise RecordDamagedError(f"{where}: {error.message}", remedy=remedy) from error


def _cut(offsets: Ints, sizes: Ints, file_bytes: int) -> Iterator[slice]:
    """Yield the rows of each slice of the entries; in one window each, unless `file_bytes` is 0."""
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
        last = max(min(last, first + SLICE_ROWS), first + 1)
        yield slice(first, last)
        first = last
