"""A run of one queue as Arrow batches, a few MiB at a time, whatever the run's length.

The queue's entries cut the run into slices: within one log file, within a window, and about
SLICE_BYTES of records or SLICE_ROWS rows each. A slice is decoded and let go before the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyrocket.errors import REBUILD_QUEUES, OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_columns import QueueRun, decode_columns
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.runs import Ints
from pyrocket.index.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog
from pyrocket.message import StoredMessage

SLICE_BYTES = 8 * 1024 * 1024
SLICE_ROWS = 16_384
WINDOW_BYTES = 64 * 1024 * 1024
_ENTRIES_AT_ONCE = 65_536
_BEGIN_AT_MINIMUM = "Begin at the queue's minimum offset."


@dataclass(frozen=True)
class Slice:
    """Messages of one queue from `first_offset` on, as raw records, with their tags codes."""

    first_offset: int
    tags_codes: Ints
    records: RecordFields


class Scanner:
    """Reads runs of queues. Holds no state between slices."""

    def __init__(
        self, log: CommitLog, broker_name: str, settle: Callable[[], None] = lambda: None
    ) -> None:
        self._log, self._broker_name, self._settle = log, broker_name, settle

    def scan(
        self,
        queue: ConsumeQueue,
        start: int,
        end: int,
        columns: Sequence[str],
        *,
        verify_crc: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield exactly the messages [start, end) of `queue`.

        Raises OffsetOutOfRangeError where entries or their records are gone, StoreDamagedError.
        """
        while start < end:
            offsets, sizes, _ = self._places(queue, start, end)
            for first, last in _cut(offsets, sizes, self._log.file_bytes):
                # A slice whose bodies inflate to a lot comes in several batches.
                while first < last:
                    run = self._run(queue, start + first)
                    fields = self._open(offsets[first:last], sizes[first:last], run)
                    batch = decode_columns(fields, run, columns, verify_crc=verify_crc)
                    yield batch
                    first += batch.num_rows
            start += len(offsets)

    def records(self, queue: ConsumeQueue, start: int, end: int) -> Iterator[Slice]:
        """Yield the messages [start, end) of `queue` as checked records; raises as `scan`."""
        while start < end:
            offsets, sizes, tags_codes = self._places(queue, start, end)
            for first, last in _cut(offsets, sizes, self._log.file_bytes):
                run = self._run(queue, start + first)
                fields = self._open(offsets[first:last], sizes[first:last], run)
                fields.check_run(run.topic, run.queue_id, run.first_offset)
                yield Slice(run.first_offset, tags_codes[first:last], fields)
            start += len(offsets)

    def _run(self, queue: ConsumeQueue, first_offset: int) -> QueueRun:
        return QueueRun(queue.topic, self._broker_name, queue.queue_id, first_offset)

    def _places(self, queue: ConsumeQueue, start: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return log offsets, sizes and tags codes of the first messages of [start, end)."""
        try:
            return self._places_now(queue, start, end)
        except (OffsetOutOfRangeError, StoreDamagedError):
            # A recovery rewrites the queues: what it leaves counts.
            self._settle()
            return self._places_now(queue, start, end)

    def _places_now(self, queue: ConsumeQueue, start: int, end: int) -> tuple[Ints, Ints, Ints]:
        entries = queue.entries(start, min(end, start + _ENTRIES_AT_ONCE))
        self._check_present(queue, start, entries, end)
        offsets = entries["physical_offset"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        self._check_usable(queue, start, offsets, sizes)
        return offsets, sizes, entries["tags_code"].astype(np.int64)

    def _check_present(self, queue: ConsumeQueue, start: int, entries: Entries, end: int) -> None:
        sizes = entries["size"]
        if len(entries) and sizes.all():
            return
        at = start + (int(np.argmin(sizes != 0)) if len(entries) else 0)
        if queue.is_cleaned(at):
            raise cleaned_away(queue, at)
        raise OffsetOutOfRangeError(
            f"queue {queue.queue_id} of {queue.topic!r} has no message at offset {at}, wanted up to"
            f" {end}.",
            remedy="It was deleted, or the store is not the one the offsets were taken from.",
        )

    def _check_usable(self, queue: ConsumeQueue, start: int, offsets: Ints, sizes: Ints) -> None:
        """Prove that the entries can be used as positions: ascending, none longer than a window."""
        good = (sizes >= FIXED_BYTES) & (sizes <= WINDOW_BYTES)
        good &= (offsets >= 0) & (offsets < 2**63 - WINDOW_BYTES)
        good[1:] &= offsets[1:] >= offsets[:-1] + sizes[:-1]
        if good.all():
            return
        at = int(np.argmin(good))
        raise StoreDamagedError(
            f"queue {queue.queue_id} of {queue.topic!r} has a bad entry at offset {start + at}: log"
            f" offset {offsets[at]}, size {sizes[at]}.",
            remedy=REBUILD_QUEUES,
        )

    def _open(self, offsets: Ints, sizes: Ints, run: QueueRun) -> RecordFields:
        low = int(offsets[0])
        length = int(offsets[-1] + sizes[-1]) - low
        where = f"offset {run.first_offset} of queue {run.queue_id} of {run.topic!r}"
        if low + length > self._log.file_end(low):
            raise StoreDamagedError(
                f"the queue entry at {where} runs over the end of a log file.",
                remedy=REBUILD_QUEUES,
            )
        try:
            buffer, base = self._log.window(low, length)
        except FileNotFoundError:
            raise _file_gone(f"{where} (log offset {low})") from None
        return RecordFields(buffer, base, offsets - base, sizes)


def read_message(log: CommitLog, queue: ConsumeQueue, offset: int, entry: np.void) -> StoredMessage:
    """Return the message that an entry of `queue` points to, checked to be the one at `offset`."""
    where = f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    try:
        if entry["physical_offset"] < 0 or not FIXED_BYTES <= entry["size"] <= log.file_bytes:
            raise StoreDamagedError("its entry is no place in the log.")
        where_to = int(entry["physical_offset"]), int(entry["size"])
        record = decode_record(log.read(*where_to))
        if (record.topic, record.queue_id, record.queue_offset) != (
            queue.topic,
            queue.queue_id,
            offset,
        ):
            raise StoreDamagedError("its entry points to another message.")
        if (record.physical_offset, record.size) != where_to:
            raise StoreDamagedError("its record names another place or size than its entry.")
    except FileNotFoundError:
        raise _file_gone(where) from None
    except StoreDamagedError as error:
        raise StoreDamagedError(f"{where}: {error.message}", remedy=error.remedy) from error
    return record.to_message()


def cleaned_away(queue: ConsumeQueue, offset: int) -> OffsetOutOfRangeError:
    """Return the error of a reader whose messages went while it read."""
    return OffsetOutOfRangeError(
        f"the messages from offset {offset} of queue {queue.queue_id} of {queue.topic!r} on were"
        " cleaned away.",
        remedy=_BEGIN_AT_MINIMUM,
    )


def _file_gone(where: str) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"the log file with {where} was cleaned away.", remedy=_BEGIN_AT_MINIMUM
    )


def _cut(offsets: Ints, sizes: Ints, file_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of each slice of the entries."""
    ends = offsets + sizes
    totals = np.cumsum(sizes)
    first = 0
    while first < len(offsets):
        start = int(offsets[first])
        before = int(totals[first - 1]) if first else 0
        reach = min(start + WINDOW_BYTES, start - start % file_bytes + file_bytes)
        last = min(
            int(np.searchsorted(totals, before + SLICE_BYTES, side="right")),
            int(np.searchsorted(ends, reach, side="right")),
            first + SLICE_ROWS,
        )
        last = max(last, first + 1)
        yield first, last
        first = last
