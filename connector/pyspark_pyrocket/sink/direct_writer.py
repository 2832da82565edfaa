"""`delivery=at-least-once`: tasks append Arrow batches straight to the log.

What a task has appended stays when the task is tried again, or when a micro-batch is replayed.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyrocket.errors import StoreLockedError
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.options.delivery import FLUSH_ASYNC, FLUSH_TASK
from pyspark_pyrocket.sink.batch_identity import batch_of_task
from pyspark_pyrocket.sink.prepare import Sink, open_for_writing, settle_store
from pyspark_pyrocket.sink.task_rows import log_left_out, send_rows, with_rows
from pyspark_pyrocket.transport.interface import Target
from pyspark_pyrocket.worker import freeze_imports


@dataclass(frozen=True)
class RowsAppended(WriterCommitMessage):
    """How many rows one task has appended, and where; `left_out` it has not written."""

    target: Target
    rows: int
    left_out: int = 0


@called_by_spark
class DirectWriter(DataSourceArrowWriter):
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
        _log_left_out(self._sink, messages)
        if self._sink.options.flush != FLUSH_ASYNC:
            with contextlib.suppress(StoreLockedError):
                replace(self._sink.target, store_id=None).open_sink().close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: rows of tasks that succeeded stay; a log takes nothing back."""


@called_by_spark
class DirectStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; Spark makes it anew for each micro-batch and again for its commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one task; durable when it returns, unless `flush=async`."""
        return append_rows(self._sink, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Note the store that the query writes to; the rows are visible already."""
        sink = settle_store(self._sink, batchId)
        if sink.checkpoint is not None:
            sink.checkpoint.keep(sink.store)
        _log_left_out(self._sink, messages, f"micro-batch {batchId}: ")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: rows of tasks that succeeded stay; a log takes nothing back."""


def append_rows(sink: Sink, batches: Iterator[pa.RecordBatch]) -> RowsAppended:
    """Append every batch whole or not at all, in order; an error names the row's place."""
    freeze_imports()
    some = with_rows(batches)
    if some is None:
        return RowsAppended(sink.target, 0)
    if not sink.store:
        sink = settle_store(sink, batch_of_task(sink.options.topic).batch)
    flush = sink.options.flush
    store = open_for_writing(sink, flush="manual" if flush == FLUSH_TASK else flush)
    try:
        rows, left_out = send_rows(sink, some, store.append, _what_stays)
        if flush == FLUSH_TASK:
            store.flush()
    finally:
        # The clean end makes every queue of the store durable: not for a task to do.
        store.close(clean=False)
    return RowsAppended(sink.target, rows, left_out)


def _log_left_out(
    sink: Sink, messages: Sequence[WriterCommitMessage | None], batch: str = ""
) -> None:
    appended = [each for each in messages if isinstance(each, RowsAppended)]
    log_left_out(sink, sum(each.left_out for each in appended), batch)


def _what_stays(rows_before: int) -> str:
    return f"Nothing of this Arrow batch was appended; {rows_before} rows before it were."
