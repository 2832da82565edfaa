"""The writer for the option `delivery`, and the one for `at-least-once`.

With `at-least-once`, tasks append Arrow batches straight to the log. Appended rows stay when a task
is retried or a micro-batch is replayed, so rows can be duplicated.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyrocket.errors import FailedSend, StoreLockedError, StoreUnavailableError
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.options.delivery import AT_LEAST_ONCE, FLUSH_ASYNC, FLUSH_TASK
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.sink.batch_identity import append_ids, batch_of_task
from pyspark_pyrocket.sink.prepare import SinkPlan, open_sink, prepare_sink, settle_store
from pyspark_pyrocket.sink.staged_writer import StagedStreamWriter, StagedWriter
from pyspark_pyrocket.sink.task_rows import send_rows, with_rows
from pyspark_pyrocket.transport.interface import MessageSink, Target
from pyspark_pyrocket.worker import LOG, freeze_imports, log_to_stderr


def batch_writer(request: Request, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Check the target, create it if requested, and return the writer of a batch."""
    sink = prepare_sink(request, schema, overwrite)
    direct = sink.options.delivery == AT_LEAST_ONCE
    return DirectWriter(sink) if direct else StagedWriter(sink)


def stream_writer(
    request: Request, schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Check the target as `batch_writer` does, and return the writer of a micro-batch."""
    sink = prepare_sink(request, schema, overwrite, streaming=True)
    direct = sink.options.delivery == AT_LEAST_ONCE
    return DirectStreamWriter(sink) if direct else StagedStreamWriter(sink)


@dataclass(frozen=True)
class RowsAppended(WriterCommitMessage):
    """The number of rows that one task appended, and the number that nullBody=drop left out."""

    target: Target
    rows: int
    left_out: int = 0


@called_by_spark
class DirectWriter(DataSourceArrowWriter):
    """A batch write; rows are visible as soon as a task has appended them."""

    def __init__(self, sink: SinkPlan) -> None:
        self._sink, self._write = sink, uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one task. They are durable on return, unless `flush=async`."""
        return append_rows(self._sink, iterator, self._write)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Shut the store down cleanly, unless `flush=async` or another process is writing.

        After a clean shutdown the next writer does not need to recover.
        """
        _log_left_out(self._sink, messages)
        if self._sink.options.flush != FLUSH_ASYNC:
            with contextlib.suppress(StoreLockedError):
                self._sink.target.of_store(None).open_sink().close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: appended rows cannot be removed from a log."""


@called_by_spark
class DirectStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; Spark creates one for each micro-batch and another for its commit."""

    def __init__(self, sink: SinkPlan) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return append_rows(self._sink, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Record the store that the query writes to; the rows are visible already."""
        sink = settle_store(self._sink, batchId)
        if sink.checkpoint is not None:
            sink.checkpoint.record(sink.store, sink.target.broker)
        _log_left_out(self._sink, messages, f"micro-batch {batchId}: ")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: appended rows cannot be removed from a log."""


def append_rows(sink: SinkPlan, batches: Iterator[pa.RecordBatch], write: str = "") -> RowsAppended:
    """Append parts of batches in order, each completely or not at all; an error names the row.

    write: Identifies a batch write.
    """
    freeze_imports()
    filled = with_rows(batches)
    if filled is None:
        return RowsAppended(sink.target, 0)
    if not sink.store:
        sink = settle_store(sink, batch_of_task(sink.options.topic).batch)
    flush = sink.options.flush
    store = open_sink(sink, flush="manual" if flush == FLUSH_TASK else flush)
    try:
        # Other transports would store the ids, which costs them more than it gives here.
        ids = append_ids(write) if sink.options.endpoint.name_servers else repeat("")
        rows, left_out = send_rows(sink, filled, partial(_append, store, ids), _outcome)
        if flush == FLUSH_TASK:
            store.flush()
    finally:
        # A clean shutdown would flush every queue of the store, which is too much for one task.
        store.close(clean=False)
    return RowsAppended(sink.target, rows, left_out)


def _append(store: MessageSink, ids: Iterator[str], batch: pa.RecordBatch, **options: Any) -> None:
    """Append rows; an error that says that they are stored must not make Spark repeat the task."""
    try:
        store.append(batch, repeat_id=next(ids), **options)
    except StoreUnavailableError as error:
        if error.failed_send is not FailedSend.STORED:
            raise
        log_to_stderr()
        LOG.warning("%d rows are stored: %s", len(batch), error)


def _log_left_out(
    sink: SinkPlan, messages: Sequence[WriterCommitMessage | None], batch: str = ""
) -> None:
    appended = [message for message in messages if isinstance(message, RowsAppended)]
    sink.log_left_out(sum(message.left_out for message in appended), batch)


def _outcome(rows_before: int) -> str:
    return f"No row of this part was appended; the {rows_before} rows before it were."
