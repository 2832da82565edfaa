"""Messages of a topic as raw records: what travels between a store and the code that decodes it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyrocket.errors import PyrocketError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_columns import QueueRun, build_columns, check_columns
from pyrocket.formats.record_fields import RecordFields

_ROWS_WORTH, _BYTES_WORTH = 4096, 1 << 20
"""A batch with either is large enough to be handed on."""


@dataclass(frozen=True)
class RecordSlice:
    """Checked records of one queue, or of several, in the order in which the log has them.

    Valid until the next slice is taken: the records may lie in a window of the log that moves.

    Attributes:
        run: Topic, broker and queue of the records; SEVERAL_QUEUES as queue id if each record
            names its own.
        records: The records, not yet decoded.
        order: Of several queues: the rows of the records in the order in which they were asked
            for.
    """

    run: QueueRun
    records: RecordFields
    order: Ints | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def next_offset(self) -> int:
        """The queue offset at which a read of this queue can be resumed after this slice."""
        return int(self.records.queue_offset[-1]) + 1

    def decode(
        self, columns: Sequence[str], *, verify_crc: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns; several batches where bodies inflate to a lot.

        Columns: `pyrocket.SCAN_COLUMNS`. Raises StoreDamagedError, SchemaError.
        """
        check_columns(columns)
        records = self.records
        while len(records):
            batch = build_columns(records, self.run, columns, verify_crc=verify_crc)
            yield batch
            records = records.part(slice(batch.num_rows, None))

    def decode_in_order(
        self, columns: Sequence[str], *, verify_crc: bool = False
    ) -> pa.RecordBatch | None:
        """Return the columns as one batch in `order`; None where bodies inflate to a lot."""
        check_columns(columns)
        batch = build_columns(self.records, self.run, columns, verify_crc=verify_crc)
        if batch.num_rows < len(self.records):
            return None
        return batch if self.order is None else batch.take(pa.array(self.order))


def decode_slices(
    slices: Iterable[RecordSlice],
    columns: Sequence[str],
    *,
    verify_crc: bool = False,
    join: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of slices of single queues, in their order; raises as `decode`.

    With `join` small batches are joined, since a filter may leave few messages of each slice. What
    was decoded before an error is yielded before the error is raised.
    """
    batches = (batch for each in slices for batch in each.decode(columns, verify_crc=verify_crc))
    return _joined(batches) if join else batches


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    few: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            few.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _ROWS_WORTH or size >= _BYTES_WORTH:
                yield from _as_one(few)
                few, rows, size = [], 0, 0
    except PyrocketError:
        yield from _as_one(few)
        raise
    yield from _as_one(few)


def _as_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
