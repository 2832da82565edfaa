"""Chooses the queue with the lowest latency of sends. RocketMQ has no equivalent.

Messages are distributed unevenly: the fastest queue receives nearly all of them, and its consumers
must be able to process them.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from pyrocket.client.selection import RoundRobin
from pyrocket.values.message import MessageQueue

WINDOW = 32
"""The mean latency of a queue is that of this many last sends to it."""

EXPLORE_EVERY = 16
"""One in this many sends goes to the next queue in turn, to measure its latency."""


class LeastLatency:
    """The latencies of the queues of one topic, measured by one producer.

    `start` is the position of the round robin among queues with equal mean latency, and should be
    random. A queue without a measurement is chosen before all others.

    After a failed send, all queues of its broker have at least the latency of this send, until a
    send to the broker succeeds. `failed_ms` keeps these latencies by broker; topics can share it.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    >>> latencies = LeastLatency(start=0)
    >>> for queue, milliseconds in zip(queues, [9, 2]):
    ...     latencies.record(queue, milliseconds)
    >>> latencies.choose(queues).queue_id
    1
    """

    def __init__(self, start: int, failed_ms: dict[str, float] | None = None) -> None:
        self._failed_ms = {} if failed_ms is None else failed_ms
        self._ties, self._explored = RoundRobin(start), RoundRobin(start)
        self._sends = 0
        self._last: defaultdict[MessageQueue, deque[float]] = defaultdict(
            lambda: deque(maxlen=WINDOW)
        )
        self._means: dict[MessageQueue, float] = {}

    def record(self, queue: MessageQueue, latency_ms: float) -> None:
        """Record the latency of a send that succeeded, in milliseconds."""
        last = self._last[queue]
        last.append(latency_ms)
        self._means[queue] = sum(last) / len(last)
        self._failed_ms.pop(queue.broker, None)

    def failed(self, queue: MessageQueue, timeout_ms: float) -> None:
        """Record a send that failed, with its time-out."""
        self._failed_ms[queue.broker] = timeout_ms

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
        least = min(map(self._latency_ms, queues), default=0)
        fastest = [queue for queue in queues if self._latency_ms(queue) == least]
        return self._ties.next(fastest)

    def _latency_ms(self, queue: MessageQueue) -> float:
        return max(self._means.get(queue, 0), self._failed_ms.get(queue.broker, 0))
