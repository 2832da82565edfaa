"""Single messages of queues, which give marks of the log, sizes of messages, and times."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise

from pyrocket.formats.checksum import crc32
from pyrocket.formats.record import HEADER_BYTES, follow
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.remoting.lookups import records_in_log
from pyrocket.remoting.offsets import QueuePlace, Sample, TopicsOfBroker
from pyrocket.remoting.records import records_of
from pyrocket.remoting.requests import PullAnswer, message_at, offset_near, pull
from pyrocket.values.message import ByteSpan, LogMark, MessageQueue, QueueRange

_MESSAGES = 8
_KEPT = 10_000
_MOST = 2**63 - 1
_NONE = Sample(1, None, _MOST)


class SampledOffsets(TopicsOfBroker):
    """Calls one broker, and remembers samples of its queues.

    A sample is a function of the queue and the offset alone, so that a plan that is repeated later
    has the same sizes.
    """

    def mark(self, offsets: Mapping[MessageQueue, int]) -> LogMark | None:
        """Return the mark of the newest message before these offsets; None if there is none."""
        marks = self._marks([(queue, at) for queue, at in offsets.items() if at > 0]).values()
        return max(marks, key=lambda mark: mark.log_offset, default=None)

    def _marks(self, places: Collection[QueuePlace]) -> dict[MessageQueue, LogMark]:
        samples = self._before(places)
        cut = [place for place, sample in samples.items() if sample.end < place[1]]
        calls = [pull(queue.topic, queue.queue_id, end - 1, 1, self._group) for queue, end in cut]
        for place, answer in zip(cut, self._ask(calls), strict=True):
            newest = _sample(answer, place[1]).mark or samples[place].mark
            samples[place] = samples[place]._replace(mark=newest, end=place[1])
        self._memory.samples |= samples
        marks = {queue: sample.mark for (queue, _), sample in samples.items()}
        return {queue: mark for queue, mark in marks.items() if mark is not None}

    def holds(self, mark: LogMark) -> bool | None:
        """Return whether the log has the marked message: not if it only has older ones.

        None if it may have expired.
        """
        topics = self._memory.planned
        (record,) = records_in_log(
            self._ask, [message_at(mark.log_offset, min(topics, default=""))]
        )
        if record is not None and _mark_of(record) == mark:
            return True
        bounds = self.bounds(topics).items()
        oldest = [(queue, has.minimum) for queue, has in bounds if has.minimum < has.maximum]
        places = [row.physical_offset for row in self._records_at(oldest) if row is not None]
        return False if min(places, default=mark.log_offset + 1) <= mark.log_offset else None

    def refilled(
        self, offsets: Mapping[MessageQueue, int], mark: LogMark
    ) -> dict[MessageQueue, int]:
        """Return queues with messages newer than the mark before these offsets, and the first."""
        bounds = self.queue_bounds(offsets).items()
        ends = {queue: (has.minimum, min(offsets[queue], has.maximum)) for queue, has in bounds}
        marks = self._marks([(queue, end) for queue, (first, end) in ends.items() if first < end])
        newer = [queue for queue, last in marks.items() if last.log_offset > mark.log_offset]
        return self.offsets_at(dict.fromkeys(newer, mark.store_timestamp + 1))

    def sizes(self, ranges: Sequence[QueueRange]) -> list[ByteSpan]:
        """Return estimates, with places as if the log had one range after the other."""
        means = self._mean_bytes(ranges)
        counts = [part.rows * mean for part, mean in zip(ranges, means, strict=True)]
        spans = zip(counts, accumulate(counts), strict=True)
        return [ByteSpan(end - count, end, count) for count, end in spans]

    def split_at_bytes(
        self, splits: Sequence[tuple[QueueRange, Sequence[int]]]
    ) -> list[list[tuple[int, int]]]:
        """Split ranges as if all messages of a range had its mean size."""
        means = self._mean_bytes([part for part, _ in splits])
        return [
            [
                (part.start + rows, rows * mean)
                for rows in (min(at // mean, part.rows) for at in marks)
            ]
            for (part, marks), mean in zip(splits, means, strict=True)
        ]

    def _mean_bytes(self, ranges: Collection[QueueRange]) -> list[int]:
        """Return the mean size of the last messages of each range."""
        samples = self._before([(part.queue, part.end) for part in ranges if part.rows > 0])
        return [samples.get((part.queue, part.end), _NONE).mean for part in ranges]

    def _before(self, places: Collection[QueuePlace]) -> dict[QueuePlace, Sample]:
        """Return the samples before these offsets: one flight, or two if messages have expired."""
        known = self._memory.samples
        starts = {place: max(place[1] - _MESSAGES, 0) for place in places if place not in known}
        while starts:
            calls = [
                pull(queue.topic, queue.queue_id, start, end - start, self._group)
                for (queue, end), start in starts.items()
            ]
            expired: dict[QueuePlace, int] = {}
            for (place, start), answer in zip(starts.items(), self._ask(calls), strict=True):
                if start < answer.minimum < place[1]:
                    expired[place] = answer.minimum
                else:
                    known[place] = _sample(answer, place[1])
            starts = expired
        samples = {place: known[place] for place in places}
        if len(known) > _KEPT:
            self._memory.samples = dict(samples)
        return samples

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at or after its time, or the end.

        The answer of a broker is a guess, see `offset_near`. Brackets the offset with single
        messages, first at the guess and beside it: one flight for each step, for all queues.
        """
        bounds = self.queue_bounds(times_ms)
        low = {queue: has.minimum for queue, has in bounds.items()}
        high = {queue: has.maximum for queue, has in bounds.items()}
        filled = [queue for queue in times_ms if low[queue] < high[queue]]
        near = [offset_near(queue.topic, queue.queue_id, times_ms[queue]) for queue in filled]
        at, is_guess = dict(zip(filled, self._ask(near), strict=True)), True
        while left := [queue for queue in at if low[queue] < high[queue]]:
            places = [(queue, min(max(at[queue], low[queue]), high[queue] - 1)) for queue in left]
            for (queue, place), row in zip(places, self._records_at(places), strict=True):
                if row is not None and row.store_timestamp < times_ms[queue]:
                    low[queue] = at[queue] = min(row.queue_offset + 1, high[queue])
                else:
                    high[queue], at[queue] = place, place - 1
                if not is_guess:
                    at[queue] = (low[queue] + high[queue]) // 2
            is_guess = False
        return low

    def _records_at(self, places: Collection[QueuePlace]) -> list[Record | None]:
        """Return the records at offsets of queues; None if there is none."""
        group = self._group
        calls = [pull(queue.topic, queue.queue_id, at, 1, group) for queue, at in places]
        return [next(iter(records_of(answer.records)), None) for answer in self._ask(calls)]


def _sample(answer: PullAnswer, end: int) -> Sample:
    """Return the sample in an answer, which is without records if they have expired."""
    starts, reached = follow(answer.records, 0)
    for start, until in reversed([*pairwise([*starts, reached])]):
        record = bytes(answer.records[start:until])
        if (at := decode_record(record).queue_offset) < end:
            return Sample(reached // len(starts), _mark_of(record), at + 1)
    return _NONE


def _mark_of(record: bytes) -> LogMark:
    decoded = decode_record(record)
    return LogMark(decoded.physical_offset, decoded.store_timestamp, crc32(record[:HEADER_BYTES]))
