"""All that the broker knows of one group: its queues, and the batches of its last attempts."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyrocket.broker.pop.events import Drop, Event, Forget
from pyrocket.broker.pop.queue import QueueState
from pyrocket.broker.pop.values import Stored
from pyrocket.formats.receipt import Receipt
from pyrocket.formats.system_topics import RETRY_PREFIX

_MAX_BATCHES = 1000

Place = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True)
class Batch:
    """What an attempt of a FIFO group has received: the queue and receipt of each message."""

    topic: str
    receipts: Sequence[tuple[Place, Receipt]]
    stored: Stored


class GroupState:
    """The state of one group. Take `lock` for everything.

    listed: whether the group was seen in `subscriptionGroup.json`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.queues: dict[Place, QueueState] = {}
        self.turn = 0
        self.swept_ms = 0
        self.listed = False
        self._batches: OrderedDict[str, Batch] = OrderedDict()

    @property
    def in_flight(self) -> int:
        """How many messages it has not acked."""
        return sum(len(state.flight) for state in self.queues.values())

    @property
    def retries(self) -> int:
        """How many of them are in its retry topic, also of topics that it does not consume now."""
        topic = RETRY_PREFIX + self.name
        return sum(len(state.flight) for (name, _), state in self.queues.items() if name == topic)

    def apply(self, event: Event) -> None:
        """Change the state."""
        if isinstance(event, Drop):
            self.queues.clear()
            self._batches.clear()
            return
        place = event.topic, event.queue_id
        if isinstance(event, Forget):
            self.queues.pop(place, None)
            return
        if place not in self.queues:
            self.queues[place] = QueueState()
        self.queues[place].apply(event)

    def row(self, place: Place, receipt: Receipt, now: int) -> int | None:
        """Return the row of a delivery; None if it is invalid, -1 if the message is acked."""
        state = self.queues.get(place)
        if state is None or receipt.offset >= state.next:
            return None
        row = state.flight.find(receipt.offset)
        if row < 0:
            return -1
        flight = state.flight
        same = flight.pop[row] == receipt.pop and flight.attempt[row] == receipt.attempt
        return row if same and flight.visible[row] > now else None

    def remember(self, attempt_id: str, batch: Batch) -> None:
        """Keep what an attempt has received."""
        self._batches[attempt_id] = batch
        while len(self._batches) > _MAX_BATCHES:
            self._batches.popitem(last=False)

    def batch(self, attempt_id: str) -> Batch | None:
        """Return what an attempt has received."""
        return self._batches.get(attempt_id)

    def to_json(self) -> list[Any]:
        """Return the queues for a snapshot."""
        return [[*place, state.to_json()] for place, state in self.queues.items()]

    @classmethod
    def from_json(cls, name: str, queues: Sequence[Any]) -> "GroupState":
        """Return the group of a snapshot. Raises ValueError, KeyError, TypeError."""
        group = cls(name)
        for topic, queue_id, content in queues:
            group.queues[topic, queue_id] = QueueState.from_json(content)
        return group
