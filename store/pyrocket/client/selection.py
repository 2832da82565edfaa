"""Which queue a message is sent to.

By default, the queues of a topic take turns (`RoundRobin`, `choose_queue`). Callers of a send can
pass a `Selector` instead, which chooses the queue by an argument. `FaultTable` is the list of
brokers that a producer avoids because they were slow or failed: the longer a send took, the longer
its broker is avoided. `LeastLatency` has no equivalent in RocketMQ: the fastest queue receives
nearly all messages, and its consumers must be able to process them.

Source: `TopicPublishInfo`, `LatencyFaultToleranceImpl`, `MQFaultStrategy` with the figures of 5.1.4
and later, and the classes of `org.apache.rocketmq.client.producer.selector`.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

from pyrocket.base.arguments import check_type, is_number
from pyrocket.client.allocation import in_machine_rooms
from pyrocket.errors import InvalidInputError
from pyrocket.formats.hashes import java_hash
from pyrocket.values.message import Message, MessageQueue

_LATENCIES = (50, 100, 550, 1800, 3000, 5000, 15000)
_UNAVAILABLE = (0, 0, 2000, 5000, 6000, 10000, 30000)
_FAILED_SEND = 10000
"""The latency in milliseconds that is recorded for a failed send."""


def unavailable_ms(latency_ms: int) -> int:
    """Return how long a broker is avoided after a send with this latency, in milliseconds.

    >>> unavailable_ms(549), unavailable_ms(550), unavailable_ms(60_000)
    (0, 2000, 30000)
    """
    index = bisect_right(_LATENCIES, latency_ms)
    return _UNAVAILABLE[index - 1] if index else 0


class FaultTable:
    """Keeps for each broker the time until which it is unavailable, and whether it is reachable.

    A broker without an entry is available and reachable. All times are milliseconds of one clock,
    which should be monotonic.
    """

    def __init__(self) -> None:
        self._available_from: dict[str, int] = {}
        self._unreachable: set[str] = set()

    def record(
        self,
        broker: str,
        latency_ms: int,
        now_ms: int,
        *,
        failed: bool = False,
        reachable: bool = True,
    ) -> None:
        """Record the latency of a send. A later record never makes the broker available earlier.

        A `failed` send counts as one that took ten seconds. RocketMQ records an error that the
        broker returned with `failed=True, reachable=False`, and a failed connection with
        `failed=True`.
        """
        unavailable = unavailable_ms(_FAILED_SEND if failed else latency_ms)
        if unavailable:
            known = self._available_from.get(broker, 0)
            self._available_from[broker] = max(known, now_ms + unavailable)
        if reachable:
            self._unreachable.discard(broker)
        else:
            self._unreachable.add(broker)

    def is_available(self, broker: str, now_ms: int) -> bool:
        """Whether the broker is available at this time."""
        return now_ms >= self._available_from.get(broker, now_ms)

    def is_reachable(self, broker: str) -> bool:
        """Whether the last send to the broker reached it, or there was none."""
        return broker not in self._unreachable


Selector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Returns one of the queues of a topic: `selector(queues, message, argument)`.

`queues` are the writable queues of the topic, sorted. `argument` is the value that the caller of
the send passed for the selector. The selectors of this module raise InvalidInputError (NO_QUEUES)
if `queues` is empty. Source: `MessageQueueSelector`.
"""

_MASK = 0x7FFFFFFF


class RoundRobin:
    """The position of a producer in the queues of one topic. Source: `ThreadLocalIndex`.

    `start` should be random, so that producers that start together do not send to the same queue.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    >>> position = RoundRobin(start=0)
    >>> [position.next(queues).queue_id for _ in range(4)]
    [1, 2, 0, 1]
    """

    def __init__(self, start: int) -> None:
        self.restart(start)

    def restart(self, start: int) -> None:
        """Continue after the position `start`. RocketMQ with a fault table continues at a random
        position before each retry of a send.
        """
        self._position = start & _MASK

    def next(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Return the next queue. Raises InvalidInputError (NO_QUEUES) if there are none."""
        _check_queues(queues)
        self._position = (self._position + 1) & _MASK
        return queues[self._position % len(queues)]

    def next_where(
        self, queues: Sequence[MessageQueue], accepts: Callable[[MessageQueue], bool]
    ) -> MessageQueue | None:
        """Return the next queue that `accepts` returns True for, or None after a complete round."""
        for _ in queues:
            queue = self.next(queues)
            if accepts(queue):
                return queue
        return None


def choose_queue(
    queues: Sequence[MessageQueue],
    position: RoundRobin,
    *,
    last_broker: str | None = None,
    faults: FaultTable | None = None,
    now_ms: int = 0,
) -> MessageQueue:
    """Return the next queue in turn, if possible not on the broker of the failed last attempt.

    `last_broker` is the broker of the last attempt to send the same message, None for the first
    attempt. With `faults`, queues of available brokers are preferred, then those of reachable
    brokers; `now_ms` is the time on the clock of `faults`. If no queue qualifies, the next queue is
    returned. Raises InvalidInputError (NO_QUEUES). Source: `MQFaultStrategy.selectOneMessageQueue`
    of RocketMQ 5.1.4 and later.
    """

    def elsewhere(queue: MessageQueue) -> bool:
        return queue.broker != last_broker

    def available(queue: MessageQueue) -> bool:
        return elsewhere(queue) and (faults is None or faults.is_available(queue.broker, now_ms))

    def reachable(queue: MessageQueue) -> bool:
        return elsewhere(queue) and (faults is None or faults.is_reachable(queue.broker))

    choice = position.next_where(queues, available)
    if choice is None and faults is not None:
        choice = position.next_where(queues, reachable)
    return position.next(queues) if choice is None else choice


def by_hash(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """Select the same queue for equal arguments. Source: `SelectMessageQueueByHash`.

    `argument` is a string, or an integer of at most 64 bits. A Java producer selects the same queue
    for an equal String or Integer, and for an equal Long unless it is negative and fits into an
    Integer. Raises InvalidInputError (WRONG_TYPE, KEY_OUT_OF_RANGE).

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    >>> by_hash(queues, Message(topic="orders", body=b""), "customer 7").queue_id
    3
    """
    _check_queues(queues)
    return queues[abs(_java_hash_code(argument)) % len(queues)]


def by_random(random: Random) -> Selector:
    """Return a selector that selects any queue at random. Source: `SelectMessageQueueByRandom`."""

    def select(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
        _check_queues(queues)
        return random.choice(queues)

    return select


def in_rooms(rooms: Collection[str], inner: Selector) -> Selector:
    """Return a selector that prefers brokers in the given machine rooms.

    The selector `inner` selects one of the queues in these rooms (see
    `allocation.in_machine_rooms`), or one of all queues if these rooms have none. RocketMQ does not
    implement its `SelectMessageQueueByMachineRoom`: it always returns null.
    """

    def select(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
        return inner(in_machine_rooms(queues, rooms) or queues, message, argument)

    return select


def _java_hash_code(argument: Any) -> int:
    if isinstance(argument, str):
        return java_hash(argument)
    if not is_number(argument):
        check_type((), "Use a string (str) or a whole number (int).", argument=argument)
    argument = int(argument)
    if -(1 << 31) <= argument < 1 << 31:
        return argument
    if not -(1 << 63) <= argument < 1 << 63:
        raise InvalidInputError(
            f"argument is {argument}, which has more than 64 bits.",
            remedy="Use a smaller number, or a string.",
            code="KEY_OUT_OF_RANGE",
        )
    code = (argument ^ (argument >> 32)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def _check_queues(queues: Sequence[MessageQueue]) -> None:
    if not queues:
        raise InvalidInputError(
            "The topic has no queues to send to.",
            remedy="Check the topic's write queues and permission.",
            code="NO_QUEUES",
        )


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
