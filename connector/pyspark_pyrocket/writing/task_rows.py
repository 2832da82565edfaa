"""The rows of one task of a sink: Arrow batch after Arrow batch, a bad row named with its place."""

import random
import re
from collections.abc import Callable, Iterable
from itertools import chain

import pyarrow as pa
from pyrocket.errors import InvalidInputError
from pyspark import TaskContext

from pyspark_pyrocket.writing.send_batch import send_batch
from pyspark_pyrocket.writing.sink import Sink

_ROW = re.compile(r"\brow (\d+)\b")


def with_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch] | None:
    """Return the batches that have rows, or None where there are none: nothing need be opened."""
    some = filter(len, batches)
    first = next(some, None)
    return None if first is None else chain([first], some)


def send_rows(
    sink: Sink,
    batches: Iterable[pa.RecordBatch],
    append: Callable[..., object],
    outcome: Callable[[int], str],
) -> int:
    """Hand every batch to `append(batch, topic=, first_queue=)`; return how many rows there were.

    An error of a row says its place, and `outcome` of the rows before its batch in a sentence what
    became of the write. Raises InvalidInputError.
    """
    rows = 0
    # Rows without a queue or key go round robin. Each task begins elsewhere, so that
    # micro-batches of a few rows do not all go to the first queue.
    first_queue = random.randrange(1 << 16)
    topic = sink.options.topic or None
    for number, batch in enumerate(batches):
        try:
            sent = send_batch(batch, sink.columns, sink.json_body)
            append(sent, topic=topic, first_queue=first_queue + rows)
        except InvalidInputError as error:
            raise _placed(error, number, rows, outcome(rows)) from None
        rows += len(batch)
    return rows


def _placed(
    error: InvalidInputError, batch: int, rows_before: int, outcome: str
) -> InvalidInputError:
    """Return the error with the row counted from the start of its task, and the task's place."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    message = _ROW.sub(lambda row: f"row {int(row[1]) + rows_before}", error.message, count=1)
    return type(error)(
        f"Partition {partition}, Arrow batch {batch}, counting from 0: {message} {outcome}",
        remedy=error.remedy,
        code=error.code,
    )
