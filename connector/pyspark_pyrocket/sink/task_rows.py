"""Writes the rows of one task of a sink, batch by batch; errors name the row."""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyrocket.errors import InvalidInputError
from pyspark import TaskContext

from pyspark_pyrocket.options.payload import DROP
from pyspark_pyrocket.sink.columns import send_batch
from pyspark_pyrocket.sink.kafka_rows import Rows, rows_with_body
from pyspark_pyrocket.sink.prepare import SinkPlan

_PART_BYTES = 12 << 20
"""Approximate maximum size of an append, which a broker takes as one request."""

_ROW = re.compile(r"\brow (\d+)\b")


def with_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch] | None:
    """Return the batches that have rows; None if there is none, so that no store is opened."""
    filled = filter(len, batches)
    first = next(filled, None)
    return None if first is None else chain([first], filled)


def send_rows(
    sink: SinkPlan,
    batches: Iterable[pa.RecordBatch],
    append: Callable[..., object],
    outcome: Callable[[int], str],
) -> tuple[int, int]:
    """Call `append(rows, topic=, first_queue=)` for every part of every batch.

    outcome: called with the number of rows written before the failed part; returns the last
        sentence of the error, which states which rows are visible.
    Returns the numbers of rows written and left out. Raises InvalidInputError, which names the row
    and its task.
    """
    rows = left_out = 0
    # Rows without a queue or key are distributed round robin. Each task starts at a random queue,
    # so that micro-batches of a few rows do not all use the first queue.
    first_queue = random.randrange(1 << 16)
    options = sink.options
    for number, batch in _parts(batches):
        kept = _kept(sink, batch)
        try:
            sent = send_batch(
                batch if kept is None else batch.take(pa.array(kept)),
                sink.columns,
                sink.json_body,
                null_body=options.null_body,
                key_encoding=options.key_encoding,
            )
            if len(sent):
                append(sent, topic=options.topic or None, first_queue=first_queue + rows)
        except InvalidInputError as error:
            before = rows + left_out
            raise _placed(error, number, before, kept, outcome(rows)) from None
        rows += len(sent)
        left_out += len(batch) - len(sent)
    return rows, left_out


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the parts of each batch with its number."""
    for number, batch in enumerate(batches):
        size = -(-len(batch) // (batch.nbytes // _PART_BYTES + 1))
        for start in range(0, len(batch), size):
            yield number, batch.slice(start, size)


def _kept(sink: SinkPlan, batch: pa.RecordBatch) -> Rows | None:
    """Return the indexes of the rows of a batch that are written; None for all rows."""
    at = sink.body_position
    return rows_with_body(batch, at) if sink.options.null_body == DROP and at is not None else None


def _placed(
    error: InvalidInputError, batch: int, rows_before: int, kept: Rows | None, outcome: str
) -> InvalidInputError:
    """Return the error with the task's number; its row number counts all rows of the task."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0

    def name(row: re.Match[str]) -> str:
        number = int(row[1]) if kept is None else int(kept[int(row[1])])
        return f"row {number + rows_before}"

    return type(error)(
        f"Partition {partition}, Arrow batch {batch}, counting from 0: "
        f"{_ROW.sub(name, error.message, count=1)} {outcome}",
        remedy=error.remedy,
        code=error.code,
    )
