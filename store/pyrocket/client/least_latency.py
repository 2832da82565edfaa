"""Chooses the queue with the lowest latency of sends. RocketMQ has no equivalent.

Messages are distributed unevenly: the fastest queue receives nearly all of them, and its consumers
must be able to process them.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from pyrocket.client.selection import RoundRobin
from pyrocket.message import MessageQueue

WINDOW = 32
"""The mean latency of a queue is that of this many last sends to it."""

EXPLORE_EVERY = 16
"""One in this many sends goes to the next queue in turn, to measure its latency."""


class LeastLatency:
    """The latencies of the queues of one topic, measured by one producer.

    `start` is the position of the round robin among queues with equal mean latency, and should be
    random. A queue without a measurement is chosen before all others.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    >>> latencies = LeastLatency(start=0)
    >>> for queue, milliseconds in zip(queues, [9, 2]):
    ...     latencies.record(queue, milliseconds)
    >>> latencies.choose(queues).queue_id
    1
    """

    def __init__(self, start: int) -> None:
        self._ties, self._explored = RoundRobin(start), RoundRobin(start)
        self._sends = 0
        self._last: defaultdict[MessageQueue, deque[float]] = defaultdict(
            lambda: deque(maxlen=WINDOW)
        )
        self._means: dict[MessageQueue, float] = {}

    def record(self, queue: MessageQueue, latency_ms: float) -> None:
        """Record the latency of a send in milliseconds; for a failed send, pass its time-out."""
        last = self._last[queue]
        last.append(latency_ms)
        self._means[queue] = sum(last) / len(last)

    def choose(
        self, queues: Sequence[MessageQueue], *, last_broker: str | None = None
    ) -> MessageQueue:
        """Return the queue with the lowest mean latency; every sixteenth call, the next in turn.

        Queues of `last_broker`, the broker of a failed last attempt, are chosen only if there are
        no others. Raises InvalidInputError (NO_QUEUES).
        """
        queues = [queue for queue in queues if queue.broker != last_broker] or queues
        self._sends += 1
        if self._sends % EXPLORE_EVERY == 0:
            return self._explored.next(queues)
        least = min((self._means.get(queue, 0) for queue in queues), default=0)
        fastest = [queue for queue in queues if self._means.get(queue, 0) == least]
        return self._ties.next(fastest)
