"""Writes: tasks append Arrow batches straight to the log, which makes them at-least-once.

What a task has appended stays when the task is tried again, or when a micro-batch is replayed.
"""

import contextlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyrocket import Store, StoreConfig
from pyrocket.errors import (
    InvalidInputError,
    StoreLockedError,
    StoreNotFoundError,
    StoreNotSharedError,
)
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_pyrocket.options import FLUSH_ASYNC, FLUSH_TASK
from pyspark_pyrocket.send_batch import send_batch
from pyspark_pyrocket.sink import Sink
from pyspark_pyrocket.stores import check_uuid, not_shared
from pyspark_pyrocket.task import freeze_imports

_ROW = re.compile(r"\brow (\d+)\b")


@dataclass(frozen=True)
class RowsAppended(WriterCommitMessage):
    """What one task has appended, in rows and bytes of log, and to which store."""

    store: str
    rows: int = 0
    bytes: int = 0

    def plus(self, rows: int, size: int) -> "RowsAppended":
        """Return the sum."""
        return replace(self, rows=self.rows + rows, bytes=self.bytes + size)


class RocketWriter(DataSourceArrowWriter):
    """A batch write; the tasks' rows are visible since they were appended."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one task; durable when it returns, unless `flush=async`."""
        return append_rows(self._sink, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the store cleanly, unless `flush=async` or somebody else is writing.

        After that the next start of the machine need not read the log again.
        """
        if self._sink.options.flush != FLUSH_ASYNC:
            with contextlib.suppress(StoreLockedError):
                Store.open(self._sink.options.path).close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: rows of tasks that succeeded stay; a log takes nothing back."""


class RocketStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; Spark makes it anew for each micro-batch and again for its commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one task; durable when it returns, unless `flush=async`."""
        return append_rows(self._sink, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the tasks' rows are visible since they were appended."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: rows of tasks that succeeded stay; a log takes nothing back."""


def append_rows(sink: Sink, batches: Iterator[pa.RecordBatch]) -> RowsAppended:
    """Append every batch whole or not at all, in order; an error names the row's place."""
    freeze_imports()
    batches = filter(len, batches)
    first = next(batches, None)
    if first is None:
        return RowsAppended(sink.store)
    store = _open(sink)
    try:
        done = _append_all(sink, store, chain([first], batches))
        if sink.options.flush == FLUSH_TASK:
            store.flush()
    finally:
        # The clean end makes every queue of the store durable: not for a task to do.
        store.close(clean=False)
    return done


def _append_all(sink: Sink, store: Store, batches: Iterator[pa.RecordBatch]) -> RowsAppended:
    done = RowsAppended(sink.store)
    # Rows without a queue or key go round robin. Each task begins elsewhere, so that
    # micro-batches of a few rows do not all go to the first queue.
    first_queue = random.randrange(1 << 16)
    for number, batch in enumerate(batches):
        try:
            appended = store.append_batch(
                send_batch(batch, sink.columns),
                topic=sink.options.topic or None,
                first_queue=first_queue + done.rows,
            )
        except InvalidInputError as error:
            raise _placed(error, number, done.rows) from None
        done = done.plus(appended.rows, appended.bytes)
    return done


def _placed(error: InvalidInputError, number: int, rows_before: int) -> InvalidInputError:
    """Return the error with the row counted from the start of its task, and the task's place."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    message = _ROW.sub(lambda row: f"row {int(row[1]) + rows_before}", error.message, count=1)
    return type(error)(
        f"Partition {partition}, Arrow batch {number}, counting from 0: {message} "
        f"Nothing of this Arrow batch was appended; {rows_before} rows before it were.",
        remedy=error.remedy,
        code=error.code,
    )


def _open(sink: Sink) -> Store:
    """Open the driver's store for appending; only the driver creates one."""
    flush = "manual" if sink.options.flush == FLUSH_TASK else sink.options.flush
    config = StoreConfig(auto_create_topics=sink.options.create_if_missing, flush=flush)
    path = sink.options.path
    try:
        store = Store.open(path, config=config)
    except StoreNotFoundError as error:
        raise not_shared(path, f"there is no store: {error.message}") from error
    try:
        check_uuid(path, sink.store, store.uuid)
    except StoreNotSharedError:
        store.close(clean=False)
        raise
    return store
