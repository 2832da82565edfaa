"""`delivery=exactly-once`: tasks stage rows in files of their own, and the driver publishes them.

Staged rows are invisible to readers. Rows staged by failed, repeated or speculative attempts of a
task are never published. If the driver publishes a batch twice, the store recognises its identity
and drops the second one.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyrocket import Published, SinkBatch, Staged
from pyrocket.errors import PyrocketError, StoreLockedError
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.sink.batch_identity import agreed, batch_of_task, batch_of_write
from pyspark_pyrocket.sink.prepare import SinkPlan, open_sink, settle_store
from pyspark_pyrocket.sink.task_rows import send_rows, with_rows
from pyspark_pyrocket.transport.interface import MessageSink
from pyspark_pyrocket.worker import freeze_imports


@dataclass(frozen=True)
class RowsStaged(WriterCommitMessage):
    """The batch of one task, and the rows that it staged; None if it had no rows."""

    batch: SinkBatch
    staged: Staged | None


@called_by_spark
class StagedWriter(DataSourceArrowWriter):
    """A batch write; `commit` makes all of its rows visible at once."""

    def __init__(self, sink: SinkPlan) -> None:
        self._sink = sink
        # Spark uses this object for the tasks and for the commit, so both have the same identity.
        self._batch = batch_of_write(sink.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_rows(self._sink, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish durably; shut the store down cleanly, unless another process is writing.

        After a clean shutdown the next writer does not need to recover.
        """
        staged = _all_staged(messages)
        store = open_sink(self._sink)
        try:
            published = _publish(store, self._sink, self._batch, staged)
            self._sink.log_left_out(published.left_out)
        except BaseException:
            store.close(clean=False)
            raise
        with suppress(StoreLockedError):
            store.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the staged rows of the tasks that reported them."""
        discard(self._sink, messages)


@called_by_spark
class StagedStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; Spark creates one for each micro-batch and another for its commit."""

    def __init__(self, sink: SinkPlan) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task of a micro-batch. Raises SinkError (SINK_NO_IDENTITY)."""
        return stage_rows(self._sink, batch_of_task(self._sink.options.topic), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch durably, or drop it if it has been published before.

        Raises SinkError: SINK_FENCED if a later run of the query has published; SINK_BATCH_BEHIND,
        SINK_BATCH_DIFFERS, SINK_BATCH_GAP or SINK_STORE_CHANGED if the checkpoint and the store do
        not match.
        """
        batches = [message.batch for message in messages if isinstance(message, RowsStaged)]
        if batches:
            sink = settle_store(self._sink, batchId)
            publish(sink, agreed(batches, batchId), _all_staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._sink, messages)


def stage_rows(sink: SinkPlan, batch: SinkBatch, batches: Iterator[pa.RecordBatch]) -> RowsStaged:
    """Stage all rows of a task, in order; an error names the row and the task."""
    freeze_imports()
    filled = with_rows(batches)
    if filled is None:
        return RowsStaged(batch, None)
    sink = settle_store(sink, batch.batch)
    context = TaskContext.get()
    partition, attempt = (
        (context.partitionId(), context.attemptNumber()) if context is not None else (0, 0)
    )
    with (
        closing(open_sink(sink, staging=True)) as store,
        store.stage(batch, partition=partition, attempt=attempt) as stager,
    ):
        invisible = "Nothing of this write is visible."
        _, left_out = send_rows(sink, filled, stager.append, lambda _: invisible)
        stager.leave_out(left_out)
        return RowsStaged(batch, stager.finish())


def publish(sink: SinkPlan, batch: SinkBatch, staged: Sequence[Staged]) -> None:
    """Publish a micro-batch; if it has no rows, record only its number.

    The store is not shut down cleanly, because the next micro-batch follows soon.
    """
    has_rows = any(task.rows for task in staged)
    store = open_sink(sink, staging=not has_rows)
    try:
        if sink.checkpoint is not None:
            sink.checkpoint.record(sink.store, sink.target.broker)
        published = _publish(store, sink, batch, staged)
        sink.log_left_out(published.left_out, f"micro-batch {batch.batch}: ")
    finally:
        store.close(clean=False)


def _publish(
    store: MessageSink, sink: SinkPlan, batch: SinkBatch, staged: Sequence[Staged]
) -> Published:
    options = sink.options
    return store.publish(
        batch,
        staged,
        anonymous=not batch.run and options.transaction is None,
        on_difference=options.on_replay_difference,
        on_gap=options.on_batch_gap,
    )


def discard(sink: SinkPlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove staged rows that will not be published; on failure they are left to expire."""
    with suppress(PyrocketError, OSError), closing(open_sink(sink, staging=True)) as store:
        store.discard(_all_staged(messages))


def _all_staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [
        message.staged
        for message in messages
        if isinstance(message, RowsStaged) and message.staged is not None
    ]
