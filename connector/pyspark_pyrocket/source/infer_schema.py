"""The bodies that a batch infers its columns from: of messages that it reads, and a few only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyrocket import MessageFilter, Store

from pyspark_pyrocket.options.policies import SKIP, LossPolicy
from pyspark_pyrocket.options.positions import EARLIEST, LATEST, QueueNumbers, bounds_at
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.selection import MESSAGES, WAITING
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.pending import pending_batches, pending_partitions
from pyspark_pyrocket.source.planner import current_bounds, read_bounds
from pyspark_pyrocket.source.views import view_batches, view_partitions

SAMPLED = 1000
"""Messages that are looked at."""

SEARCHED_BYTES = 64 * 1024 * 1024
"""Of the log, in which those are looked for that a filter wants."""

_WINDOW_BYTES = 1024 * 1024

_BODY = ("body",)


@dataclass
class _Queue:
    """What of a queue has not been looked at; `budget` is how many bytes a filter may pass."""

    topic: str
    queue_id: int
    at: int
    end: int
    budget: int


def bodies_to_read(store: Store, options: ReadOptions) -> Iterator[bytes]:
    """Yield the first bodies of what a batch reads; keys and ids are not looked up for this.

    Raises what planning the read does.
    """
    if options.view == MESSAGES:
        # The read itself tells of what is lost.
        losses = Losses(LossPolicy(policy=SKIP), quiet=True)
        start, end = find_span(store, options, read_bounds(store, options), losses)
        return _spread(store, start, end, options.selection.where)
    if options.view in WAITING:
        waiting = pending_partitions(store, options)
        return _first(batch for task in waiting for batch in pending_batches(task, _BODY))
    shown = view_partitions(store, options)
    return _first(batch for task in shown for batch in view_batches(task, _BODY))


def oldest_bodies(store: Store, topics: Iterable[str], options: ReadOptions) -> Iterator[bytes]:
    """Yield the first bodies that the topics have, whatever of them is read."""
    bounds = {
        topic: {queue: queues[queue] for queue in options.subscription.chosen(topic, queues)}
        for topic, queues in current_bounds(store, topics).items()
    }
    start, end = bounds_at(EARLIEST, bounds), bounds_at(LATEST, bounds)
    return _spread(store, start, end, MessageFilter())


def _first(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    return islice((body for batch in batches for body in batch.column(0).to_pylist()), SAMPLED)


def _spread(
    store: Store, start: QueueNumbers, end: QueueNumbers, where: MessageFilter
) -> Iterator[bytes]:
    """Yield as many bodies of each queue; what short ones leave over goes to the others."""
    ranges = [
        (topic, queue, start[topic][queue], last)
        for topic, queues in end.items()
        for queue, last in queues.items()
        if start[topic][queue] < last
    ]
    queues = [_Queue(*each, budget=SEARCHED_BYTES // len(ranges)) for each in ranges]
    left = SAMPLED
    while left and queues:
        share, more = -(-left // len(queues)), []
        for queue in queues:
            asked, found = min(share, left), 0
            for body in _take(store, queue, asked, where):
                found += 1
                yield body
            left -= found
            if found == asked:
                more.append(queue)
        queues = more


def _take(store: Store, queue: _Queue, count: int, where: MessageFilter) -> Iterator[bytes]:
    """Yield the queue's next bodies: `count`, unless its end or its budget comes before."""
    while count and queue.at < queue.end and queue.budget > 0:
        until = _until(store, queue, count, where)
        wanted = (queue.at, until, ("queueOffset", "body"))
        queue.at = until
        for batch in store.scan(queue.topic, queue.queue_id, *wanted, where=where):
            part = batch.slice(0, count)
            count -= part.num_rows
            if not count:
                queue.at = part.column(0)[-1].as_py() + 1
            yield from part.column(1).to_pylist()
            if not count:
                return


def _until(store: Store, queue: _Queue, count: int, where: MessageFilter) -> int:
    """Return up to where to look for the next ones."""
    if where.wants_all:
        return min(queue.at + count, queue.end)
    window = min(_WINDOW_BYTES, queue.budget)
    place = queue.topic, queue.queue_id, queue.at, queue.end
    until, used = store.raw.cut_by_bytes(*place, [window])[0]
    # One that is longer than the window uses up more than it.
    queue.budget -= used if until > queue.at else window
    return max(until, queue.at + 1)
