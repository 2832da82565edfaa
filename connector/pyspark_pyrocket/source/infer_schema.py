"""Infers the columns of a read without a schema from a sample of message bodies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from pyrocket import MessageFilter, MessageQueue, QueueRange, ScanTally
from pyrocket.errors import SchemaError
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_pyrocket.columns.values import check_names
from pyspark_pyrocket.json.infer import infer_schema
from pyspark_pyrocket.options.ddl import to_ddl
from pyspark_pyrocket.options.payload import JSON
from pyspark_pyrocket.options.policies import SKIP, LossPolicy
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import MESSAGES
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import is_asked, read_bounds, view_partitions
from pyspark_pyrocket.source.task import EVERY_MESSAGE, Columns, rows_of
from pyspark_pyrocket.transport.interface import BrokerSource, MessageSource
from pyspark_pyrocket.worker import LOG, some_of

SAMPLED = 1000
"""Maximum number of messages that are examined."""

SEARCHED_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the log that are searched for messages that match a filter."""

_WINDOW_BYTES = 1024 * 1024


def value_fields(
    source: MessageSource | None, topics: Iterable[str], options: ReadOptions
) -> list[StructField] | None:
    """Return the columns that replace the body, or None if the body stays.

    Raises SchemaError if the columns cannot be inferred (always without a source), or if a name is
    taken.
    """
    payload = options.payload
    if payload.value_format != JSON:
        return None
    schema = payload.value_schema
    if schema is None:
        schema = _inferred(source, list(topics), options)
    check_names(payload, schema)
    fields = list(schema)
    if payload.value_column:
        fields = [StructField(payload.value_column, StructType(fields))]
    if payload.shows_corrupt:
        fields.append(StructField(payload.corrupt_column, StringType()))
    return fields


def _inferred(source: MessageSource | None, topics: list[str], options: ReadOptions) -> StructType:
    asked = some_of(options.subscription.topics) or options.subscription.pattern
    where = some_of(topics) or asked or f"view={options.view}"
    sample = f"the first messages to read of {where}"
    schema = None if source is None else infer_schema(bodies_to_read(source, options))
    if schema is None and source is not None:
        sample = f"the oldest messages of {where}, because no body in the range is a JSON object"
        schema = infer_schema(oldest_bodies(source, topics, options))
    if schema is None:
        raise SchemaError(
            f"No body among the first {SAMPLED} messages of {where} is a JSON object "
            "with fields, so the columns are not known.",
            remedy="Give the option 'valueSchema', as in valueSchema='id BIGINT, at TIMESTAMP'.",
            code="VALUE_SCHEMA_UNKNOWN",
        )
    LOG.warning("valueSchema is not set; inferred from %s: %s", sample, to_ddl(schema))
    return schema


def bodies_to_read(source: MessageSource, options: ReadOptions) -> Iterator[bytes]:
    """Yield the first bodies that a batch reads; the options `keys` and `msgId` are ignored.

    Raises the same errors as planning the read.
    """
    if options.view != MESSAGES:
        tasks = view_partitions(source, options)
        batches = (batch for task in tasks for batch in rows_of(task, ("body",), options))
        return islice((body for batch in batches for body in batch.column(0).to_pylist()), SAMPLED)
    # The read itself reports lost messages.
    losses = Losses(LossPolicy(policy=SKIP), quiet=True)
    start, end = find_span(source, options, read_bounds(source, options), losses)
    return _spread(source, start, end, options.selection.where)


def oldest_bodies(
    source: MessageSource, topics: Iterable[str], options: ReadOptions
) -> Iterator[bytes]:
    """Yield the first bodies of the topics, independent of the read's range."""
    bounds = {
        queue: limits
        for queue, limits in source.bounds(list(topics)).items()
        if is_asked(options.subscription, queue)
    }
    return _spread(source, Offsets.starts(bounds), Offsets.ends(bounds), EVERY_MESSAGE)


@dataclass
class _Queue:
    """The rest of a queue to examine; `budget` is the number of bytes that may be searched."""

    queue: MessageQueue
    at: int
    end: int
    budget: int


def _spread(
    source: MessageSource, start: Offsets, end: Offsets, where: MessageFilter
) -> Iterator[bytes]:
    """Yield the same number of bodies of each queue; longer queues make up for shorter ones."""
    waiting, sources = end.minus(start), source.by_broker()
    queues = [
        _Queue(queue, start[queue], end[queue], budget=SEARCHED_BYTES // len(waiting))
        for queue in waiting
    ]
    left = SAMPLED
    while left and queues:
        share, more = -(-left // len(queues)), []
        for queue in queues:
            asked, count = min(share, left), 0
            for body in _take(sources[queue.queue.broker], queue, asked, where):
                count += 1
                yield body
            left -= count
            if count == asked:
                more.append(queue)
        queues = more


def _take(source: BrokerSource, queue: _Queue, count: int, where: MessageFilter) -> Iterator[bytes]:
    """Yield the queue's next `count` bodies, or fewer if its end or its budget is reached."""
    columns = Columns(("queueOffset", "body"), where)
    while count and queue.at < queue.end and queue.budget > 0:
        wanted = QueueRange(queue.queue, queue.at, _until(source, queue, count, where))
        queue.at = wanted.end
        for batch in columns.of_range(source, wanted, ScanTally()):
            part = batch.slice(0, count)
            count -= part.num_rows
            if not count:
                queue.at = part.column(0)[-1].as_py() + 1
            yield from part.column(1).to_pylist()
            if not count:
                return


def _until(source: BrokerSource, queue: _Queue, count: int, where: MessageFilter) -> int:
    """Return the end of the range to search for the next bodies."""
    if where.wants_all:
        return min(queue.at + count, queue.end)
    window = min(_WINDOW_BYTES, queue.budget)
    rest = QueueRange(queue.queue, queue.at, queue.end)
    (((until, used),),) = source.split_at_bytes([(rest, [window])])
    # A message that is longer than the window costs one window of the budget.
    queue.budget -= used if until > queue.at else window
    return max(until, queue.at + 1)
