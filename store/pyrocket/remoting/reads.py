"""Reads planned ranges at a broker or at its slaves, and resumes after lost connections."""

import time
from collections.abc import Iterator
from dataclasses import replace

from pyrocket.errors import OffsetOutOfRangeError, TransportError
from pyrocket.filters.message_filter import MessageFilter, ScanTally
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.remoting.cluster import RocketMQCluster
from pyrocket.remoting.pulls import PullSettings
from pyrocket.remoting.records import read_range
from pyrocket.values.message import QueueOffsets, QueueRange

_PAUSE_S = 0.2


def read_anywhere(
    cluster: RocketMQCluster,
    left: QueueRange,
    settings: PullSettings,
    seconds: float,
    where: MessageFilter,
    tally: ScanTally,
) -> Iterator[RecordSlice]:
    """Yield the messages of a range that match `where`.

    Raises TransportError after `seconds` without progress, and the errors of `read_range`.
    """
    broker, end = left.queue.broker, time.monotonic() + seconds
    while left.rows:
        before, pool = tally.entries, None
        try:
            pool = cluster.pool(broker, seconds, reads=True)
            yield from read_range(pool, left, settings, where=where, tally=tally)
            cluster.read_at(broker, pool.suggested_id)
        except TransportError as error:
            cluster.lost(broker, reads=True)
            at_slave = pool is not None and pool.broker_id
            is_final = error.code != TransportError.default_code and not at_slave
            if tally.entries == before and (is_final or time.monotonic() > end):
                raise
            time.sleep(_PAUSE_S)
        if tally.entries > before:
            left = replace(left, start=left.start + tally.entries - before)
            end = time.monotonic() + seconds


def check_range(each: QueueRange, has: QueueOffsets) -> None:
    """Raise OffsetOutOfRangeError: a pull after the end would wait for messages."""
    if each.rows and not has.minimum <= each.start <= each.end <= has.maximum:
        raise OffsetOutOfRangeError(
            f"{each.queue} of the broker {each.queue.broker} has the messages"
            f" [{has.minimum}, {has.maximum}); [{each.start}, {each.end}) was requested.",
            remedy="The messages have expired, or the broker has lost them.",
        )
