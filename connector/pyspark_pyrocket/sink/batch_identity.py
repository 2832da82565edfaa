"""What makes a write the same one again when Spark repeats it.

A stream is known by its query id, which lives in the checkpoint, and a micro-batch by its number;
Spark tells both to the tasks. A batch write has only what the user says: Spark's properties are the
same for every write in a foreachBatch, so they are never used there.
"""

from collections.abc import Iterable
from uuid import uuid4

from pyrocket import SinkBatch
from pyrocket.errors import SinkError
from pyspark import TaskContext

from pyspark_pyrocket.options.write import WriteOptions

_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Spark's names in a task's local properties; the job group of a stream is its run id."""


def batch_of_task(target: str) -> SinkBatch:
    """Return the micro-batch that this task belongs to. Raises SinkError (SINK_NO_IDENTITY)."""
    context = TaskContext.get()
    told = {
        name: context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH, _RUN)
    }
    missing = [name for name, value in told.items() if not value]
    if missing:
        raise _no_identity(f"Spark has not told the task {' and '.join(missing)}")
    return SinkBatch(
        identity=str(told[_QUERY]), target=target, batch=int(str(told[_BATCH])), run=str(told[_RUN])
    )


def batch_of_write(options: WriteOptions) -> SinkBatch:
    """Return what a batch write is known by: the user's word, or a name that nobody repeats."""
    said = options.transaction
    if said is None:
        return SinkBatch(identity=str(uuid4()), target=options.topic, batch=0)
    return SinkBatch(identity=said.app_id, target=options.topic, batch=said.version)


def agreed(told: Iterable[SinkBatch], batch_id: int) -> SinkBatch:
    """Return the micro-batch that all tasks name, which has to be the one Spark commits.

    It began with the first of the tasks: one that is repeated much later makes it no younger.
    """
    by_task = sorted(told, key=lambda batch: batch.began)
    different = set(by_task)
    if len(different) != 1 or next(iter(different)).batch != batch_id:
        named = ", ".join(sorted(f"{b.identity}/{b.batch}/{b.run}" for b in different)) or "none"
        raise _no_identity(f"Spark commits micro-batch {batch_id}, and its tasks wrote {named}")
    return by_task[0]


def _no_identity(happened: str) -> SinkError:
    return SinkError(
        f"A repeated micro-batch could not be told from a new one: {happened}.",
        remedy="Write in foreachBatch with the options txnAppId and txnVersion, or set "
        "delivery=at-least-once.",
        code="SINK_NO_IDENTITY",
    )
