"""A source whose messages consist only of their lengths."""

import itertools

from pyrocket import ByteSpan

from support.offsets import offsets


class Lengths:
    """`queues` maps (topic, queue id) to the lengths of the messages, starting at offset
    `first`.
    """

    def __init__(self, queues, first=0, now=0):
        self.queues, self.first, self.time, self.asked = queues, first, now, 0
        self.raw = self

    def of(self, topic, queue_id, start, end):
        return self.queues[topic, queue_id][start - self.first : end - self.first]

    def bytes(self, start, end):
        """Return the number of bytes between the start and end offsets of all queues."""
        return sum(
            sum(self.of(queue.topic, queue.queue_id, start[queue], offset))
            for queue, offset in end.items()
        )

    def sizes(self, ranges):
        return [self._span(each) for each in ranges]

    def _span(self, each):
        """Return a span as if queues were far apart in the log; `bytes` is estimated from the first
        message.
        """
        there = self.of(each.queue.topic, each.queue.queue_id, each.start, each.end)
        begin = 10**12 * each.queue.queue_id
        guess = there[0] * len(there) if there else 0
        return ByteSpan(begin, begin + sum(there), guess) if there else ByteSpan(0, 0, 0)

    def split_at_bytes(self, splits):
        return [self._split(each, marks) for each, marks in splits]

    def _split(self, each, marks):
        found = []
        for mark in marks:
            there = self.of(each.queue.topic, each.queue.queue_id, each.start, each.end)
            sums = list(itertools.accumulate(there))
            rows = sum(total <= mark for total in sums)
            found.append((each.start + rows, sums[rows - 1] if rows else 0))
            self.asked += rows
        return found

    def now_ms(self):
        return self.time


def starts(queues, first=0):
    return offsets({"t": {queue: first for _, queue in queues}})


def ends(queues, first=0):
    return offsets({"t": {queue: first + len(lengths) for (_, queue), lengths in queues.items()}})
