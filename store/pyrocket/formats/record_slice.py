"""Slices: the undecoded messages that all reads yield, and the loop that decodes them.

A read is a generator of slices: of a range of a queue (`index.queues.scanner`), of ranges of many
queues (`slice_of_runs`), or of single messages in the log (`message_locations`). A slice has at
most a few MiB of checked records. It is decoded and released before the next slice is read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from pyrocket.errors import PyrocketError
from pyrocket.formats.arrow_buffers import Bools, Ints
from pyrocket.formats.record_columns import build_columns, check_columns
from pyrocket.formats.record_fields import RecordFields
from pyrocket.values.message import MessageQueue

_MIN_ROWS, _MIN_BYTES = 4096, 1 << 20
"""Batches are joined until they reach one of these limits."""


@dataclass(frozen=True)
class RecordSlice:
    """Checked records of one or several queues, in log order.

    Attributes:
        queue: Topic, broker and queue of the records; the queue id is SEVERAL_QUEUES if it differs
            between records.
        records: The undecoded records.
        tags_codes: From the queue entries; empty if the records were read without entries.
        order: For several queues: the rows in the requested order.
    """

    queue: MessageQueue
    records: RecordFields
    tags_codes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    order: Ints | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def first_offset(self) -> int:
        """The queue offset of the first message."""
        return int(self.records.queue_offset[0])

    @property
    def next_offset(self) -> int:
        """The queue offset at which a read of this queue can be resumed after this slice."""
        return int(self.records.queue_offset[-1]) + 1

    def part(self, rows: slice | Bools | Ints) -> "RecordSlice":
        """Return the messages in these rows of a slice without `order`; shares the buffer."""
        codes = self.tags_codes[rows] if len(self.tags_codes) else self.tags_codes
        return replace(self, records=self.records.part(rows), tags_codes=codes)

    def decode(
        self, columns: Sequence[str], *, verify_crc: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns (of `pyrocket.SCAN_COLUMNS`), in several batches if bodies are large.

        Raises StoreDamagedError, SchemaError.
        """
        return decode_slices([self], columns, verify_crc=verify_crc)

    def decode_in_order(
        self, columns: Sequence[str], *, verify_crc: bool = False
    ) -> pa.RecordBatch | None:
        """Return the columns as one batch in `order`; None if inflated bodies are too large."""
        check_columns(columns)
        batch = self.build(columns, verify_crc=verify_crc)
        if batch.num_rows < len(self):
            return None
        return batch if self.order is None else batch.take(pa.array(self.order))

    def build(self, columns: Sequence[str], *, verify_crc: bool = False) -> pa.RecordBatch:
        """Return the columns, or those of the first messages if inflated bodies are too large."""
        return build_columns(self.records, self.queue, columns, verify_crc=verify_crc)


def empty_slice(queue: MessageQueue) -> RecordSlice:
    """Return a slice without messages, with an empty `order`."""
    none = np.zeros(0, np.int64)
    return RecordSlice(queue, RecordFields(pa.py_buffer(b""), 0, none, none), order=none)


def decode_slices(
    slices: Iterable[RecordSlice],
    columns: Sequence[str],
    *,
    verify_crc: bool = False,
    join: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Decode slices to batches of columns (of `pyrocket.SCAN_COLUMNS`), in order.

    Checks the columns immediately. With `join`, small batches are joined, because a filter may
    select few messages of each slice. Raises the errors of the slices, StoreDamagedError, and
    SchemaError for a `bodyText` that is not UTF-8.
    """
    check_columns(columns)
    build = partial(RecordSlice.build, columns=columns, verify_crc=verify_crc)
    batches = decode_with(build, slices)
    return _joined(batches) if join else batches


def decode_with(
    build: Callable[[RecordSlice], pa.RecordBatch], slices: Iterable[RecordSlice]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `build` returns for the slices.

    If `build` returns only the first messages of a slice, it is called again for the rest.
    """
    for part in slices:
        while len(part):
            batch = build(part)
            yield batch
            part = part.part(slice(batch.num_rows, None))


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    few: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            few.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _MIN_ROWS or size >= _MIN_BYTES:
                yield from _as_one(few)
                few, rows, size = [], 0, 0
    except PyrocketError:
        # A reader that continues after the error must not miss the messages before it.
        yield from _as_one(few)
        raise
    yield from _as_one(few)


def _as_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
