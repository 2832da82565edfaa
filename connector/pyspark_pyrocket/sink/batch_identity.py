"""The identity by which the store recognises a write that Spark repeats.

A stream is identified by its query id, which is in the checkpoint, and a micro-batch by its number;
Spark passes both to the tasks. A batch write is identified by the options txnAppId and txnVersion:
Spark's local properties are the same for every write in a foreachBatch, so they are not used.
"""

from collections.abc import Iterable, Iterator
from itertools import count, repeat

from pyrocket import SinkBatch
from pyrocket.errors import SinkError
from pyspark import TaskContext

from pyspark_pyrocket.options.write import WriteOptions

_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Names of local properties of a task. The job group of a streaming query is its run id."""


def batch_of_task(target: str) -> SinkBatch:
    """Return the micro-batch of this task. Raises SinkError (SINK_NO_IDENTITY)."""
    context = TaskContext.get()
    properties = {
        name: context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH, _RUN)
    }
    missing = [name for name, value in properties.items() if not value]
    if missing:
        raise _no_identity(f"the task has no local property {' and '.join(missing)}")
    return SinkBatch(
        identity=str(properties[_QUERY]),
        target=target,
        batch=int(str(properties[_BATCH])),
        run=str(properties[_RUN]),
    )


def batch_of_write(options: WriteOptions) -> SinkBatch:
    """Return the identity of a batch write: the one given by its options, or a random one."""
    transaction = options.transaction
    if transaction is None:
        return SinkBatch.once(options.topic)
    return SinkBatch(identity=transaction.app_id, target=options.topic, batch=transaction.version)


def append_ids(write: str = "") -> Iterator[str]:
    """Yield the ids of the appends of this task: the same ones if it is repeated.

    write: Identifies a batch write; a stream is identified by its query and its micro-batch.
    """
    context = TaskContext.get()
    if context is None:
        return repeat("")
    task = write or "/".join(str(context.getLocalProperty(name)) for name in (_QUERY, _BATCH))
    return (f"{task}/{context.partitionId()}/{number}" for number in count())


def agreed(batches: Iterable[SinkBatch], batch_id: int) -> SinkBatch:
    """Return the micro-batch of all tasks, with the earliest start time among them.

    A task that is retried later therefore does not change the start time of the micro-batch.
    Raises SinkError (SINK_NO_IDENTITY) unless all tasks wrote the micro-batch that Spark commits.
    """
    by_task = sorted(batches, key=lambda batch: batch.began)
    different = set(by_task)
    if len(different) != 1 or next(iter(different)).batch != batch_id:
        named = ", ".join(sorted(f"{b.identity}/{b.batch}/{b.run}" for b in different)) or "none"
        raise _no_identity(f"Spark commits micro-batch {batch_id}, but its tasks wrote {named}")
    return by_task[0]


def _no_identity(happened: str) -> SinkError:
    return SinkError(
        f"A repeated micro-batch cannot be recognised: {happened}.",
        remedy="Write in foreachBatch with the options txnAppId and txnVersion, or set "
        "delivery=at-least-once.",
        code="SINK_NO_IDENTITY",
    )
