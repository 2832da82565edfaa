"""Prints a checkpoint as text or as JSON."""

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import click
from pyrocket import MessageQueue
from pyrocket.base.arguments import counted

from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.tools.checkpoints.files import PlannedBatch, SparkCheckpoint
from pyspark_pyrocket.transport.interface import Bounds

_MAX_BATCHES = 10


def document(checkpoint: SparkCheckpoint) -> dict[str, Any]:
    """Return the content of a checkpoint as a JSON document; times are ISO-8601, UTC."""
    return {
        "directory": str(checkpoint.path),
        "queryId": checkpoint.query_id,
        "batches": [_batch(batch) for batch in checkpoint.batches],
        "foreign": list(checkpoint.foreign),
        "damaged": [
            {"file": damage.file, "reason": damage.reason} for damage in checkpoint.damaged
        ],
    }


def show_checkpoint(checkpoint: SparkCheckpoint, bounds: Bounds | None = None) -> None:
    """Print the last micro-batches, the next offset of each queue, and damaged or foreign files.

    bounds: the offsets in the store; adds the number of unread messages.
    """
    click.echo(f"query {checkpoint.query_id or 'without an id'} in {checkpoint.path}\n")
    earlier = len(checkpoint.batches) - _MAX_BATCHES
    if earlier > 0:
        click.echo(f"  … and {earlier} earlier micro-batches")
    pairs = zip(checkpoint.batches, (None, *checkpoint.batches), strict=False)
    for batch, before in [*pairs][-_MAX_BATCHES:]:
        click.echo(_line(batch, before))
    if checkpoint.newest is None:
        click.echo("  No micro-batch has been planned yet.")
    else:
        for source, offset in checkpoint.newest.ours().items():
            _show_offset(checkpoint.newest, source, offset, bounds)
    for damage in checkpoint.damaged:
        click.echo(f"damaged: {damage.file}: {damage.reason}")
    for file in checkpoint.foreign:
        click.echo(f"not Spark's: {file}")


def rows_of(batch: PlannedBatch, before: PlannedBatch | None) -> int | None:
    """Return the number of messages that a micro-batch was planned to read; None if unknown."""
    starts = before.ours() if before else {}
    total = 0
    for source, end in batch.ours().items():
        start = starts.get(source, end)
        for queue, offset in [] if end.initial else end.offsets.items():
            begin = end.begin(queue, start)
            if begin is None:
                return None
            total += offset - begin
    return total


def queue_names(offsets: Offsets) -> dict[MessageQueue, str]:
    """Return how each queue is shown: by its id, and by broker:id if there are several brokers."""
    several = len({queue.broker for queue in offsets}) > 1
    return {
        queue: f"{queue.broker}:{queue.queue_id}" if several else str(queue.queue_id)
        for queue in offsets
    }


def offset_table(offsets: Offsets, bounds: Bounds | None) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of offsets, the heading first."""
    yield ("topic", "queue", "next offset", *(("first", "end", "left") if bounds else ()))
    names = queue_names(offsets)
    for queue, offset in offsets.items():
        limits = (bounds or {}).get(queue)
        numbers: tuple[object, ...] = ()
        if limits is not None:
            left = limits.maximum - max(offset, limits.minimum)
            lost = limits.minimum - offset
            shown = left if lost <= 0 else f"{left} ({lost} lost)"
            numbers = (limits.minimum, limits.maximum, shown)
        elif bounds:
            numbers = ("-", "-", "no such queue")
        yield (queue.topic, names[queue], str(offset), *map(str, numbers))


def show_table(rows: Iterator[tuple[str, ...]]) -> None:
    """Print rows as a table; each column is as wide as its widest cell."""
    table = list(rows)
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo(f"  {'  '.join(cells)}".rstrip())


def _show_offset(
    batch: PlannedBatch, source: int, offset: StreamOffset, bounds: Bounds | None
) -> None:
    if batch.committed:
        when = "after the last micro-batch"
    elif offset.initial:
        when = f"starting with micro-batch {batch.number}, which reads nothing"
    else:
        when = f"after micro-batch {batch.number}, which Spark runs again after a restart"
    which = f"source {source}: " if len(batch.sources) > 1 else ""
    several = len(offset.brokers) > 1
    counts_in = "; ".join(
        f"{f'{broker}: ' if several else ''}store {known.store or 'unknown'}, epoch {known.epoch}"
        for broker, known in offset.brokers.items()
    )
    click.echo(f"\n{which}{when} ({counts_in}):")
    show_table(offset_table(offset.offsets, bounds))
    for topic in offset.lost.topics:
        count = counted(offset.lost.of_topics((topic,)).total(), "message")
        click.echo(f"  lost in {topic}: {count}")


def _line(batch: PlannedBatch, before: PlannedBatch | None) -> str:
    state = "committed" if batch.committed else "planned, not committed"
    rows = rows_of(batch, before)
    messages = "? messages" if rows is None else counted(rows, "message")
    return (
        f"  micro-batch {batch.number}  {_time(batch) or 'at an unknown time'}  {state}  {messages}"
    )


def _batch(batch: PlannedBatch) -> dict[str, Any]:
    ours = batch.ours()
    return {
        "batch": batch.number,
        "committed": batch.committed,
        "planned": _time(batch),
        "sources": [
            json.loads(line) if at in ours else {"foreign": line}
            for at, line in enumerate(batch.sources)
        ],
    }


def _time(batch: PlannedBatch) -> str | None:
    if not batch.planned_ms:
        return None
    when = datetime.fromtimestamp(batch.planned_ms / 1000, tz=timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
