"""Batch reads of single messages: looked up on the driver, read at their locations by tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyrocket import LookupRequest, LookupResult, MessageLocations, MessageQueue

from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span
from pyspark_pyrocket.source.offsets import Offsets, topics_of
from pyspark_pyrocket.source.partitions import Locations, ReadPartition, group_by_weight
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.transport.interface import Bounds, MessageSource
from pyspark_pyrocket.worker import LOG, log_to_stderr

TASK_MESSAGES = 32_768
"""Maximum messages in one task: reading a message may load a page of the log."""

TASK_BYTES = 32 * 1024 * 1024


def located_partitions(source: MessageSource, options: ReadOptions) -> list[ReadPartition]:
    """Return the tasks that read the messages with the keys or ids, within the span of the read."""
    bounds = read_bounds(source, options)
    start, end = find_span(source, options, bounds, Losses(options.loss))
    begin_ms, end_ms = options.span.time_range(source.now_ms())
    request = LookupRequest(
        topics=topics_of(bounds),
        keys=options.lookup.keys,
        ids=options.lookup.ids,
        begin_ms=begin_ms,
        end_ms=end_ms - 1,
    )
    found = []
    for broker, one in source.by_broker().items():
        of_broker = {queue: has for queue, has in bounds.items() if queue.broker == broker}
        if of_broker:
            located = one.locate(replace(request, topics=topics_of(of_broker)))
            within = list(_within(located, broker, start, end))
            _log(options, located, within, of_broker)
            found += [ReadPartition(one.target, Locations(task)) for task in _tasks(within)]
    return found


def _tasks(located: Iterable[MessageLocations]) -> Iterator[tuple[MessageLocations, ...]]:
    pieces = (piece for each in located for piece in _pieces(each))
    return group_by_weight(
        pieces, [TASK_MESSAGES, TASK_BYTES], lambda each: [len(each), each.stored_bytes]
    )


def _within(
    located: LookupResult, broker: str, start: Offsets, end: Offsets
) -> Iterator[MessageLocations]:
    """Yield the locations within the span of the read."""
    for each in located.locations:
        queue = MessageQueue(each.topic, broker, each.queue_id)
        if queue in start:
            kept = each.within(start[queue], end[queue])
            if len(kept):
                yield kept


def _pieces(locations: MessageLocations) -> Iterator[MessageLocations]:
    for first in range(0, len(locations), TASK_MESSAGES):
        yield locations[first : first + TASK_MESSAGES]


def _log(
    options: ReadOptions, located: LookupResult, kept: list[MessageLocations], bounds: Bounds
) -> None:
    """Log the number of messages found, and the cost of the lookup."""
    log_to_stderr()
    LOG.info(
        "%s found %d of %d messages of %s through the key index: candidates: %d, index files: %d,"
        " bytes of the log searched after the end of the index: %d, found outside the offsets"
        " to read: %d",
        options.lookup.describe(),
        sum(map(len, kept)),
        sum(limits.maximum - limits.minimum for limits in bounds.values()),
        ", ".join(topics_of(bounds)),
        located.candidates,
        located.index_files,
        located.walked_bytes,
        len(located) - sum(map(len, kept)),
    )
