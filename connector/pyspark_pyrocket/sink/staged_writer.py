"""`delivery=exactly-once`: tasks stage their rows beside the log, the driver publishes them all.

Nobody sees a staged row. What tasks leave that failed, were repeated or came second is never
published; what the driver publishes again, the store knows by the batch's identity, and drops.
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
from pyspark_pyrocket.sink.prepare import (
    Sink,
    open_for_staging,
    open_for_writing,
    settle_store,
)
from pyspark_pyrocket.sink.task_rows import log_left_out, send_rows, with_rows
from pyspark_pyrocket.transport.interface import MessageSink
from pyspark_pyrocket.worker import freeze_imports


@dataclass(frozen=True)
class RowsStaged(WriterCommitMessage):
    """What one task has staged, None where it had no rows, and for which batch."""

    batch: SinkBatch
    staged: Staged | None


@called_by_spark
class StagedWriter(DataSourceArrowWriter):
    """A batch write; all of its rows become visible in `commit`, or none ever."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        # The same object goes to the tasks and to the commit.
        self._batch = batch_of_write(sink.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return stage_rows(self._sink, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish durably; end the store cleanly, unless somebody else is writing.

        After that the next start of the machine need not read the log again.
        """
        staged = _all_staged(messages)
        store = open_for_writing(self._sink)
        try:
            if self._sink.options.transaction is None:
                published = store.publish(None, staged)
            else:
                published = _publish(store, self._sink, self._batch, staged)
            log_left_out(self._sink, published.left_out)
        except BaseException:
            store.close(clean=False)
            raise
        with suppress(StoreLockedError):
            store.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what is known to be staged."""
        discard(self._sink, messages)


@called_by_spark
class StagedStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; Spark makes it anew for each micro-batch and again for its commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task of a micro-batch. Raises SinkError (SINK_NO_IDENTITY)."""
        return stage_rows(self._sink, batch_of_task(self._sink.options.topic), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch durably, or drop it if it has been published before.

        Raises SinkError: SINK_FENCED, if a later run of the query has taken over; and where
        checkpoint and store do not fit together: SINK_BATCH_BEHIND, SINK_BATCH_DIFFERS,
        SINK_BATCH_GAP, SINK_STORE_CHANGED.
        """
        told = [each.batch for each in messages if isinstance(each, RowsStaged)]
        if told:
            sink = settle_store(self._sink, batchId)
            publish(sink, agreed(told, batchId), _all_staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what is known to be staged."""
        discard(self._sink, messages)


def stage_rows(sink: Sink, batch: SinkBatch, batches: Iterator[pa.RecordBatch]) -> RowsStaged:
    """Stage all rows of a task, in order; an error names the row's place."""
    freeze_imports()
    some = with_rows(batches)
    if some is None:
        return RowsStaged(batch, None)
    sink = settle_store(sink, batch.batch)
    context = TaskContext.get()
    partition, attempt = (
        (context.partitionId(), context.attemptNumber()) if context is not None else (0, 0)
    )
    with closing(open_for_staging(sink)) as store:
        stager = store.stage(batch, partition=partition, attempt=attempt)
        with stager:
            _, left_out = send_rows(
                sink, some, stager.append, lambda _: "Nothing of this write is visible."
            )
            stager.leave_out(left_out)
            return RowsStaged(batch, stager.finish())


def publish(sink: Sink, batch: SinkBatch, staged: Sequence[Staged]) -> None:
    """Publish a micro-batch; of one without rows it is only noted that it had none.

    The store is not ended cleanly, the next one comes soon.
    """
    some = any(one.rows for one in staged)
    store = open_for_writing(sink) if some else open_for_staging(sink)
    try:
        if sink.checkpoint is not None:
            sink.checkpoint.keep(sink.store)
        published = _publish(store, sink, batch, staged)
        log_left_out(sink, published.left_out, f"micro-batch {batch.batch}: ")
    finally:
        store.close(clean=False)


def _publish(
    store: MessageSink, sink: Sink, batch: SinkBatch, staged: Sequence[Staged]
) -> Published:
    options = sink.options
    return store.publish(
        batch, staged, on_difference=options.on_replay_difference, on_gap=options.on_batch_gap
    )


def discard(sink: Sink, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove what tasks have staged for nothing; whatever cannot be removed goes by its age."""
    with suppress(PyrocketError, OSError), closing(open_for_staging(sink)) as store:
        store.discard(_all_staged(messages))


def _all_staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [
        each.staged for each in messages if isinstance(each, RowsStaged) and each.staged is not None
    ]
