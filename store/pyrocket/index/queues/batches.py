"""Checked records as the batches that a scan hands on: what is wanted, neither big nor tiny."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyrocket.errors import PyrocketError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record_columns import QueueRun, build_columns
from pyrocket.formats.record_fields import RecordFields

_ROWS_WORTH, _BYTES_WORTH = 4096, 1 << 20
"""From either on a batch is worth handing on."""


def records_wanted(fields: RecordFields, where: MessageFilter) -> RecordFields:
    """Return the records whose properties `where` wants."""
    rows = where.matching(PropertyColumns(fields.properties()), len(fields))
    return fields if rows.all() else fields.part(rows)


def columns_of(
    records: RecordFields, run: QueueRun, columns: Sequence[str], *, verify_crc: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records as columns; where bodies inflate to a lot, in several batches."""
    while len(records):
        batch = build_columns(records, run, columns, verify_crc=verify_crc)
        yield batch
        records = records.part(slice(batch.num_rows, None))


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches until they are worth handing on: few messages of each slice may be wanted."""
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
        # Whoever goes on behind a loss must not miss what came before it.
        yield from _as_one(few)
        raise
    yield from _as_one(few)


def _as_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
