"""Samples of queues: the last messages before an offset.

They give the mark of the log, and the mean size of messages. A sample is a function of the queue
and the offset alone, so that a plan that is repeated later has the same sizes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyrocket.formats.checksum import crc32
from pyrocket.formats.record import HEADER_BYTES, follow
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.remoting.calls import Ask
from pyrocket.remoting.messages import PullAnswer, pull
from pyrocket.remoting.offsets import offset_near
from pyrocket.values.message import LogMark, MessageQueue, QueueOffsets

_MESSAGES = 8
_NO_BYTES = 1
_KEPT = 10_000


@dataclass(frozen=True)
class Sample:
    """The last messages before an offset: their mean size, and the mark of the newest one."""

    mean_bytes: int = _NO_BYTES
    mark: LogMark | None = None


class Samples:
    """The samples of the queues of a broker; those of the last offsets are remembered."""

    def __init__(self, group: str) -> None:
        """Pull in the name of this group."""
        self._group = group
        self._known: dict[tuple[MessageQueue, int], Sample] = {}

    def before(
        self, offsets: Collection[tuple[MessageQueue, int]], ask: Ask
    ) -> dict[tuple[MessageQueue, int], Sample]:
        """Return the samples before these offsets: one flight, or two if messages have expired."""
        known = self._known
        starts = {(queue, end): max(end - _MESSAGES, 0) for queue, end in offsets}
        wanted = [key for key in starts if key not in known]
        while wanted:
            calls = [
                pull(queue.topic, queue.queue_id, start, end - start, group=self._group)
                for queue, end in wanted
                for start in [starts[queue, end]]
            ]
            answers = dict(zip(wanted, ask(calls), strict=True))
            wanted = []
            for key, answer in answers.items():
                if starts[key] < answer.minimum < key[1]:
                    starts[key] = answer.minimum
                    wanted.append(key)
                else:
                    known[key] = _sample(answer, key[1])
        samples = {key: known[key] for key in offsets}
        if len(known) > _KEPT:
            self._known = dict(samples)
        return samples


def _sample(answer: PullAnswer, end: int) -> Sample:
    """Return the sample in an answer, which is without records if they have expired."""
    starts, reached = follow(answer.records, 0)
    if not starts:
        return Sample()
    last = slice(starts[-1], reached)
    for start, until in zip(reversed(starts), reversed([*starts[1:], reached]), strict=True):
        last = slice(start, until)
        if decode_record(bytes(answer.records[last])).queue_offset < end:
            break
    return Sample(max(reached // len(starts), _NO_BYTES), mark_of(bytes(answer.records[last])))


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
    first at the guess and before it: one flight for each step, for all queues.
    """
    low = {queue: bounds[queue].minimum for queue in times_ms}
    high = {queue: bounds[queue].maximum for queue in times_ms}
    filled = [queue for queue in times_ms if low[queue] < high[queue]]
    guesses = ask([offset_near(queue.topic, queue.queue_id, times_ms[queue]) for queue in filled])
    at = {
        queue: min(max(guess, low[queue]), high[queue] - 1)
        for queue, guess in zip(filled, guesses, strict=True)
    }
    beside = set(at)
    while wanted := [queue for queue in at if low[queue] < high[queue]]:
        records = records_at([(queue, at[queue]) for queue in wanted], ask, group)
        for queue, record in zip(wanted, records, strict=True):
            if record is not None and record.store_timestamp < times_ms[queue]:
                low[queue] = min(record.queue_offset + 1, high[queue])
                near = low[queue]
            else:
                high[queue] = at[queue]
                near = high[queue] - 1
            middle = (low[queue] + high[queue]) // 2
            is_near = queue in beside and low[queue] <= near < high[queue]
            at[queue] = near if is_near else middle
            beside.discard(queue)
    return low


def holds(
    mark: LogMark, bounds: Mapping[MessageQueue, QueueOffsets], ask: Ask, group: str
) -> bool | None:
    """Return whether a log that lacks a marked message has lost it: False, or None if unknown."""
    filled = [(queue, has.minimum) for queue, has in bounds.items() if has.minimum < has.maximum]
    oldest = records_at(filled, ask, group)
    is_lost = any(row is not None and row.physical_offset <= mark.log_offset for row in oldest)
    return False if is_lost else None


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
    samples = Samples(group).before(places, ask).items()
    return [
        queue
        for (queue, _), sample in samples
        if sample.mark is not None and sample.mark.log_offset > mark.log_offset
    ]


def records_at(
    places: Collection[tuple[MessageQueue, int]], ask: Ask, group: str
) -> list[Record | None]:
    """Return the records at offsets of queues; None if there is none."""
    calls = [pull(queue.topic, queue.queue_id, at, 1, group=group) for queue, at in places]
    return [next(iter(records_of(answer.records)), None) for answer in ask(calls)]


def records_of(data: bytes | memoryview) -> list[Record]:
    """Return records that are one after the other."""
    starts, reached = follow(memoryview(data), 0)
    return [decode_record(bytes(data[start:end])) for start, end in pairwise([*starts, reached])]
