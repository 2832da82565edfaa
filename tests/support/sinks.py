"""Helpers to stage and publish rows."""

import pyarrow as pa
from pyrocket import SinkBatch

from support.stores import batch as rows_of

QUERY = "0b7c0f3a-query"


def numbered(number, run="run-1", identity=QUERY, target="t"):
    """Return the batch with this number of a query."""
    return SinkBatch(identity=identity, target=target, batch=number, run=run)


def stage(
    store, batch, bodies, partition=0, attempt=0, topic="t", topics=None, queue_id=None, **columns
):
    """Stage bodies as one task; return its result."""
    with store.sink.stage(batch, partition=partition, attempt=attempt) as stager:
        if bodies:
            rows = rows_of(bodies, queue_id, **columns)
            if topics is not None:
                rows = rows.append_column("topic", pa.array(topics))
            stager.append(rows, topic=None if topics else topic)
        return stager.finish()


def stage_tasks(store, batch, bodies, tasks=2, **more):
    """Stage the bodies as several tasks, each with consecutive bodies."""
    share = -(-len(bodies) // tasks) or 1
    parts = [bodies[at : at + share] for at in range(0, len(bodies), share)]
    return [stage(store, batch, part, number, **more) for number, part in enumerate(parts)]


def publish(store, number, bodies, run="run-1", *, on_difference="fail", on_gap="accept", **more):
    """Stage and publish one batch of a query; gaps between batch numbers are accepted."""
    one = numbered(number, run)
    staged = stage_tasks(store, one, bodies, **more)
    return store.sink.publish(one, staged, on_difference=on_difference, on_gap=on_gap)


def staged_files(path):
    """Return the files of a query in the staging folder."""
    root = path / "pyrocket" / "staging"
    return sorted(
        str(file.relative_to(root)) for file in root.glob("*/*") if file.parent.name != "free"
    )
