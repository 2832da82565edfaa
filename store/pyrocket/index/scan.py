"""A run of one queue as Arrow batches, a few MiB at a time, whatever the run's length.

The queue's entries cut the run into slices: within one log file, within a window, and about
SLICE_BYTES of records or SLICE_ROWS rows each. A slice is decoded and let go before the next.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from pyrocket.formats.queue_entry import Entries
from pyrocket.formats.record import FIXED_BYTES
from pyrocket.formats.record_columns import QueueRun, decode_columns
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.consume_queue import ConsumeQueue
from pyrocket.log.commit_log import CommitLog

SLICE_BYTES = 4 * 1024 * 1024
SLICE_ROWS = 16_384
WINDOW_BYTES = 64 * 1024 * 1024
_ENTRIES_AT_ONCE = 65_536


class Scanner:
    """Reads runs of queues. Holds no state between slices."""

    def __init__(self, log: CommitLog, broker_name: str) -> None:
        self._log, self._broker_name = log, broker_name

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
        slice_bytes = SLICE_BYTES
        while start < end:
            entries = queue.entries(start, min(end, start + _ENTRIES_AT_ONCE))
            self._check(queue, start, entries, end)
            for first, last in _cut(entries, self._log.file_bytes, slice_bytes):
                run = QueueRun(queue.topic, self._broker_name, queue.queue_id, start + first)
                fields = self._open(entries[first:last], run)
                batch = decode_columns(fields, run, columns, verify_crc=verify_crc)
                yield batch
            start += len(entries)

    def _check(self, queue: ConsumeQueue, start: int, entries: Entries, end: int) -> None:
        """Prove that the entries exist and can be used as positions."""
        sizes, offsets = entries["size"], entries["physical_offset"]
        found = len(entries) and sizes.all()
        if not found:
            at = start + (int(np.argmin(sizes != 0)) if len(entries) else 0)
            raise OffsetOutOfRangeError(
                f"queue {queue.queue_id} of {queue.topic!r} has no message at offset {at}, wanted"
                f" up to {end}.",
                remedy="It was deleted, or the store is not the one the offsets were taken from.",
            )
        ends = offsets + sizes
        good = (sizes >= FIXED_BYTES) & (offsets >= 0)
        good &= offsets // self._log.file_bytes == (ends - 1) // self._log.file_bytes
        good[1:] &= offsets[1:] >= ends[:-1]
        if not good.all():
            at = int(np.argmin(good))
            raise StoreDamagedError(
                f"queue {queue.queue_id} of {queue.topic!r} has a bad entry at offset"
                f" {start + at}: log offset {offsets[at]}, size {sizes[at]}.",
                remedy="Run `pyrocket repair` to rebuild the queues from the log.",
            )

    def _open(self, entries: Entries, run: QueueRun) -> RecordFields:
        offsets = entries["physical_offset"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        low = int(offsets[0])
        length = int(offsets[-1] + sizes[-1]) - low
        try:
            buffer, base = self._log.window(low, length)
        except FileNotFoundError:
            raise OffsetOutOfRangeError(
                f"the log file with offset {run.first_offset} of queue {run.queue_id} of"
                f" {run.topic!r} (log offset {low}) is gone.",
                remedy="It was cleaned away; begin at the queue's minimum offset.",
            ) from None
        return RecordFields(buffer, base, offsets - base, sizes)


def _cut(entries: Entries, file_bytes: int, slice_bytes: int) -> list[tuple[int, int]]:
    """Return [first, last) of each slice of the entries."""
    offsets = entries["physical_offset"].astype(np.int64)
    ends = offsets + entries["size"]
    totals = np.cumsum(entries["size"], dtype=np.int64)
    files = offsets // file_bytes
    cuts = []
    first = 0
    while first < len(entries):
        before = totals[first - 1] if first else 0
        last = min(
            int(np.searchsorted(totals, before + slice_bytes, side="right")),
            int(np.searchsorted(files, files[first], side="right")),
            int(np.searchsorted(ends, offsets[first] + WINDOW_BYTES, side="right")),
            first + SLICE_ROWS,
        )
        last = max(last, first + 1)
        cuts.append((first, last))
        first = last
    return cuts
