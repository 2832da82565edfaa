"""Samples of queues: single messages, which give marks of the log, sizes of messages, and times.

A sample is a function of the queue and the offset alone, so that a plan that is repeated later has
the same sizes.
"""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import NamedTuple

from pyrocket.formats.checksum import crc32
from pyrocket.formats.record import HEADER_BYTES, follow
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.remoting.calls import Ask
from pyrocket.remoting.records import records_of
from pyrocket.remoting.requests import PullAnswer, offset_near, pull
from pyrocket.values.message import LogMark, MessageQueue, QueueOffsets

Place = tuple[MessageQueue, int]
"""A queue and an offset."""

_MESSAGES = 8
_KEPT = 10_000


class Sample(NamedTuple):
    """The last messages before an offset: their mean size, and the mark of the newest one."""

    mean_bytes: int = 1
    mark: LogMark | None = None


class Samples:
    """The samples of the queues of a broker; those of the last offsets are remembered."""

    def __init__(self, group: str) -> None:
        """Pull in the name of this group."""
        self._group = group
        self._known: dict[Place, Sample] = {}

    def before(self, places: Collection[Place], ask: Ask) -> dict[Place, Sample]:
        """Return the samples before these offsets: one flight, or two if messages have expired."""
        known = self._known
        starts = {place: max(place[1] - _MESSAGES, 0) for place in places if place not in known}
        while starts:
            calls = [
                pull(queue.topic, queue.queue_id, start, end - start, group=self._group)
                for (queue, end), start in starts.items()
            ]
            expired: dict[Place, int] = {}
            for (place, start), answer in zip(starts.items(), ask(calls), strict=True):
                if start < answer.minimum < place[1]:
                    expired[place] = answer.minimum
                else:
                    known[place] = _sample(answer, place[1])
            starts = expired
        samples = {place: known[place] for place in places}
        if len(known) > _KEPT:
            self._known = dict(samples)
        return samples


def _sample(answer: PullAnswer, end: int) -> Sample:
    """Return the sample in an answer, which is without records if they have expired."""
    starts, reached = follow(answer.records, 0)
    for start, until in reversed([*pairwise([*starts, reached])]):
        record = bytes(answer.records[start:until])
        if decode_record(record).queue_offset < end:
            return Sample(reached // len(starts), mark_of(record))
    return Sample()


def mark_of(record: bytes) -> LogMark:
    """Return the mark of a record."""
    decoded = decode_record(record)
    return LogMark(decoded.physical_offset, decoded.store_timestamp, crc32(record[:HEADER_BYTES]))


def first_since(
    times_ms: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, QueueOffsets],
    ask: Ask,
    group: str,
) -> dict[MessageQueue, int]:
    """Return the first offset of each queue stored at or after its time, or the end.

    The answer of a broker is a guess, see `offset_near`. Brackets the offset with single messages,
    first at the guess and beside it: one flight for each step, for all queues.
    """
    low = {queue: bounds[queue].minimum for queue in times_ms}
    high = {queue: bounds[queue].maximum for queue in times_ms}
    filled = [queue for queue in times_ms if low[queue] < high[queue]]
    guesses = ask([offset_near(queue.topic, queue.queue_id, times_ms[queue]) for queue in filled])
    at, is_guess = dict(zip(filled, guesses, strict=True)), True
    while wanted := [queue for queue in at if low[queue] < high[queue]]:
        places = [(queue, min(max(at[queue], low[queue]), high[queue] - 1)) for queue in wanted]
        for (queue, place), record in zip(places, records_at(places, ask, group), strict=True):
            if record is not None and record.store_timestamp < times_ms[queue]:
                low[queue] = at[queue] = min(record.queue_offset + 1, high[queue])
            else:
                high[queue] = place
                at[queue] = place - 1
            if not is_guess:
                at[queue] = (low[queue] + high[queue]) // 2
        is_guess = False
    return low


def has_lost(
    mark: LogMark, bounds: Mapping[MessageQueue, QueueOffsets], ask: Ask, group: str
) -> bool:
    """Return whether a log that lacks a marked message still has an older one."""
    filled = [(queue, has.minimum) for queue, has in bounds.items() if has.minimum < has.maximum]
    oldest = records_at(filled, ask, group)
    return any(row is not None and row.physical_offset <= mark.log_offset for row in oldest)


def filled_again(
    offsets: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, QueueOffsets],
    mark: LogMark,
    ask: Ask,
    group: str,
) -> list[MessageQueue]:
    """Return the queues whose last message before an offset is newer than the newest mark."""
    places = [
        (queue, at)
        for queue, at in offsets.items()
        if bounds[queue].minimum < at <= bounds[queue].maximum
    ]
    return [
        queue
        for (queue, _), sample in Samples(group).before(places, ask).items()
        if sample.mark is not None and sample.mark.log_offset > mark.log_offset
    ]


def records_at(places: Collection[Place], ask: Ask, group: str) -> list[Record | None]:
    """Return the records at offsets of queues; None if there is none."""
    calls = [pull(queue.topic, queue.queue_id, at, 1, group=group) for queue, at in places]
    return [next(iter(records_of(answer.records)), None) for answer in ask(calls)]
