"""Reads the messages for pulls.

Source: `DefaultMessageStore.getMessage`, `PullMessageProcessor`.
"""

from functools import lru_cache

from pyrocket.errors import QueueNotFoundError
from pyrocket.filters.message_filter import MessageFilter, check_expression
from pyrocket.services.consumption import MAX_SCAN, Consumption
from pyrocket.store import Store, consumption_of
from pyrocket.values.consuming import Pull, PullStatus, RawPulled, Subscription
from pyrocket.values.message import MessageQueue

MAX_MESSAGES = 1024
MAX_BODY_BYTES = 256 << 10
"""Maximum bytes of the bodies of one reply, as in RocketMQ; the first body may be larger."""


class Pulls:
    """Reads messages of one store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._storage = consumption_of(store)
        self._last: dict[tuple[str, str, int], int] = {}

    def pull(self, request: Pull) -> RawPulled:
        """Return the messages of a queue from an offset on; do not wait for new ones.

        Raises GroupNotFoundError, StorePermissionError if the group may not consume,
        QueueNotFoundError, and InvalidInputError (ILLEGAL_FILTER_EXPRESSION).
        """
        self._storage.consuming_group(request.group)
        check_queue(self._storage, request.queue)
        topic, queue_id = request.queue.topic, request.queue.queue_id
        available = self._storage.bounds(topic, queue_id)
        start = request.offset
        self._last[request.group, topic, queue_id] = start
        if not available.minimum <= start <= available.maximum:
            nearest = min(max(start, available.minimum), available.maximum)
            return RawPulled(PullStatus.OFFSET_ILLEGAL, nearest, available)
        found = self._storage.fetch(
            topic,
            queue_id,
            start,
            min(available.maximum, start + MAX_SCAN),
            filter_of(request.subscription),
            min(max(request.max_messages, 1), MAX_MESSAGES),
            MAX_BODY_BYTES,
            decode=False,
        )
        status = _status(found.raw, start, found.reached)
        return RawPulled(status, found.reached, available, found.raw)

    def last(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset from which a group last pulled; earlier messages were delivered.

        Returns 0 if the group has not pulled since the broker started.
        """
        return self._last.get((group, topic, queue_id), 0)

    def forget(self, group: str) -> None:
        for key in [*self._last]:
            if key[0] == group:
                self._last.pop(key, None)


def check_queue(storage: Consumption, queue: MessageQueue) -> None:
    """Raise QueueNotFoundError unless a queue exists."""
    topic = storage.topic(queue.topic)
    if topic is None or not 0 <= queue.queue_id < topic.read_queues:
        raise QueueNotFoundError(
            f"{queue} does not exist.", remedy="It was deleted; ask for the route again."
        )


@lru_cache
def filter_of(subscription: Subscription) -> MessageFilter:
    """Return the filter of a subscription.

    Raises InvalidInputError (ILLEGAL_FILTER_EXPRESSION, EXPRESSION_TOO_LONG).
    """
    check_expression(subscription.expression)
    if subscription.kind == "SQL92":
        return MessageFilter.parse(sql=subscription.expression)
    return MessageFilter.parse(tags=subscription.expression or "*")


def _status(records: list[bytes], start: int, reached: int) -> PullStatus:
    if records:
        return PullStatus.FOUND
    return PullStatus.NO_NEW_MSG if reached == start else PullStatus.NO_MATCHED_MSG
