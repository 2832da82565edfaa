"""Messages that are lengths only, in place of a store's."""

import itertools

from pyrocket import ByteSpan


class Lengths:
    """`queues[topic, queue]` are the lengths of its messages, from offset `first` on."""

    def __init__(self, queues, first=0, now=0):
        self.queues, self.first, self.time, self.asked = queues, first, now, 0
        self.raw = self

    def of(self, topic, queue_id, start, end):
        return self.queues[topic, queue_id][start - self.first : end - self.first]

    def bytes(self, start, end):
        """What lies between two offsets of all queues."""
        return sum(
            sum(self.of(topic, queue, start[topic][queue], offset))
            for topic, queues in end.items()
            for queue, offset in queues.items()
        )

    def log_span(self, topic, queue_id, start, end):
        """As if queues lay far from each other, and with a guess from the first message only."""
        there = self.of(topic, queue_id, start, end)
        at = 10**12 * queue_id
        guess = there[0] * len(there) if there else 0
        return ByteSpan(at, at + sum(there), guess) if there else ByteSpan(0, 0, 0)

    def cut_by_bytes(self, topic, queue_id, start, end, marks):
        found = []
        for mark in marks:
            sums = list(itertools.accumulate(self.of(topic, queue_id, start, end)))
            rows = sum(total <= mark for total in sums)
            found.append((start + rows, sums[rows - 1] if rows else 0))
            self.asked += rows
        return found

    def now(self):
        return self.time


def starts(queues, first=0):
    return {"t": {queue: first for _, queue in queues}}


def ends(queues, first=0):
    return {"t": {queue: first + len(lengths) for (_, queue), lengths in queues.items()}}
