"""The states of consumer groups: their queues, and the batches of their last receive attempts."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pyrocket.broker.pop.events import Ack, Drop, Event, Forget
from pyrocket.broker.pop.queue import QueueState
from pyrocket.broker.pop.values import Stored
from pyrocket.formats.receipt import Receipt
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.services.consumption import Consumption
from pyrocket.values.message import SendStatus

_MAX_BATCHES = 1000
_MAX_UNSURE = 10_000

_LEAVING_MS = 60_000
"""Minimum invisible time of a message while its ack is appended, and after a failed ack."""

QueueKey = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True)
class Batch:
    """The queues and receipts of the messages that a receive attempt of a FIFO group returned."""

    topic: str
    receipts: Sequence[tuple[QueueKey, Receipt]]
    stored: Stored


@dataclass(frozen=True)
class _Leaving:
    """Messages of a queue that are acked when `stored` completes.

    moved: Whether they have copies in another topic.
    held: The messages that were invisible, so that their handles were valid.
    pops: The pops of the messages in flight, by offset.
    """

    stored: Stored
    moved: bool
    place: QueueKey
    queue: QueueState
    offsets: Sequence[int]
    held: Set[int]
    pops: Mapping[int, int]


class GroupState:
    """The state of one group. Every access must hold `lock`.

    A change is applied when it is put in the append queue, but an ack is applied only after it was
    appended. If the append of an ack fails, the message is received again, and the committed offset
    does not pass it.

    listed: Whether the group has been found in `subscriptionGroup.json`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.RLock()
        self.queues: dict[QueueKey, QueueState] = {}
        self.turn = 0
        self.swept_ms = 0
        self.listed = False
        self._batches: OrderedDict[str, Batch] = OrderedDict()
        self._leaving: deque[_Leaving] = deque()
        self._unsure: OrderedDict[tuple[QueueKey, int], bool] = OrderedDict()

    @property
    @contextmanager
    def lock(self) -> Iterator[None]:
        """A context manager that locks the state and applies the acks appended so far."""
        with self._lock:
            self._settle()
            yield

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return sum(len(state.flight) for state in self.queues.values())

    @property
    def last_delivery(self) -> int:
        """The time of the last delivery of the messages in flight, epoch ms; 0 if there is none."""
        return max((state.flight.last_delivery for state in self.queues.values()), default=0)

    @property
    def retries(self) -> int:
        """The number of messages in flight in the group's retry topic, which all topics share."""
        topic = RETRY_PREFIX + self.name
        return sum(len(state.flight) for (name, _), state in self.queues.items() if name == topic)

    def change(self, event: Event, stored: Stored, now: int, *, moved: bool = False) -> None:
        """Change the state by an event; `stored` is the future of its append.

        moved: Whether copies of the messages are appended with the event.
        """
        if not isinstance(event, Ack):
            self.apply(event)
            return
        place, offsets = (event.topic, event.queue_id), event.offsets
        queue = self.queues[place]
        held = queue.invisible(offsets, now)
        pops = queue.hide(offsets, now + _LEAVING_MS)
        self._leaving.append(_Leaving(stored, moved, place, queue, offsets, held, pops))
        self._settle()

    def _settle(self) -> None:
        """Apply the acks that have been appended; appends complete in order."""
        while self._leaving and self._leaving[0].stored.done():
            ack = self._leaving.popleft()
            if not ack.stored.cancelled() and ack.stored.exception() is None:
                self._remove(ack, ack.stored.result().status)

    def _remove(self, one: _Leaving, status: SendStatus) -> None:
        if self.queues.get(one.place) is one.queue:  # The state was not replaced.
            one.queue.remove(one.pops)
        for offset in one.offsets:
            moved = self._unsure.pop((one.place, offset), one.moved if offset in one.held else None)
            if status is not SendStatus.SEND_OK and moved is not None:
                self._unsure[one.place, offset] = moved
        while len(self._unsure) > _MAX_UNSURE:
            self._unsure.popitem(last=False)

    def appends(self) -> list[Stored]:
        """Return the appends of acks that are not applied yet."""
        with self._lock:
            return [ack.stored for ack in self._leaving]

    def append_of_ack(self, place: QueueKey, offset: int) -> Stored | None:
        """Return the pending append of a message's ack, or None."""
        appends = (ack.stored for ack in self._leaving if ack.place == place and offset in ack.pops)
        return next(appends, None)

    def may_end_again(self, place: QueueKey, offset: int, *, moved: bool) -> bool:
        """Whether a message's ack or move may be repeated, because it may not be durable."""
        waiting = any(
            ack.place == place and offset in ack.held and ack.moved == moved
            for ack in self._leaving
        )
        return waiting or self._unsure.get((place, offset)) is moved

    def apply(self, event: Event) -> None:
        """Apply a state change from the log."""
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

    def row(self, place: QueueKey, receipt: Receipt, now: int) -> int | None:
        """Return the row of a delivery; None if the receipt is invalid, -1 if it has ended."""
        state = self.queues.get(place)
        if state is None or receipt.offset >= state.next:
            return None
        row = state.flight.find(receipt.offset)
        if row < 0 or self.append_of_ack(place, receipt.offset):
            return -1
        flight = state.flight
        same = flight.pop[row] == receipt.pop and flight.attempt[row] == receipt.attempt
        return row if same and flight.visible[row] > now else None

    def remember(self, attempt_id: str, batch: Batch) -> None:
        """Keep the messages that a receive attempt returned."""
        self._batches[attempt_id] = batch
        while len(self._batches) > _MAX_BATCHES:
            self._batches.popitem(last=False)

    def batch(self, attempt_id: str) -> Batch | None:
        """Return the messages that a receive attempt returned; None if unknown."""
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


class Put(Protocol):
    """Appends batches and events, all or none, and applies the events. Requires `state.lock`."""

    def __call__(
        self, state: GroupState, events: Sequence[Event], batches: Sequence[EncodedBatch] = ()
    ) -> Stored:
        """Return the future of the append. If it raises BrokerBusyError, nothing has changed."""


class GroupStates:
    """The states of consumer groups. Safe to share between threads."""

    def __init__(self, storage: Consumption, put: Put, groups: dict[str, GroupState]) -> None:
        self._storage, self._put, self._groups = storage, put, groups
        self._lock = threading.Lock()

    def all(self) -> list[GroupState]:
        """Return the states of all groups."""
        with self._lock:
            return [*self._groups.values()]

    def has(self, group: str) -> bool:
        """Whether a group has a state."""
        return group in self._groups

    def known(self, group: str) -> GroupState:
        """Return the state of a group; if it has none, return an empty state without storing it."""
        with self._lock:
            return self._groups.get(group) or GroupState(group)

    def made(self, group: str) -> GroupState:
        """Return the state of a group; a missing state is created."""
        with self._lock:
            return self._groups.setdefault(group, GroupState(group))

    @contextmanager
    def opened(self, group: str) -> Iterator[GroupState]:
        """Lock and yield the state of a group; a missing state is created."""
        while True:
            state = self.made(group)
            with state.lock:
                if self._groups.get(group) is state:  # Another thread may have dropped the state.
                    yield state
                    return

    def drop(self, group: str) -> None:
        """Remove the state of a deleted group. Raises BrokerBusyError."""
        state = self.known(group)
        with state.lock:
            if self._groups.get(group) is not state:
                return
            self._put(state, [Drop(group)])
            with self._lock:
                del self._groups[group]

    def drop_topic(self, topic: str) -> None:
        """Remove the state of groups in a deleted topic. Raises BrokerBusyError."""
        for state in self.all():
            with state.lock:
                places = [place for place in state.queues if place[0] == topic]
                if places:
                    self._put(state, [Forget(state.name, *place) for place in places])

    def drop_deleted(self) -> None:
        """Remove the groups that are no longer in RocketMQ's files. Raises BrokerBusyError."""
        for state in self.all():
            if self._is_deleted(state):
                self.drop(state.name)

    def _is_deleted(self, state: GroupState) -> bool:
        """Whether a group was in RocketMQ's files, but is not in them now.

        A group of a RocketMQ 5 broker may have committed offsets, but no settings.
        """
        if self._storage.group(state.name) is not None:
            state.listed = True
            return False
        return state.listed or not any(name == state.name for _, name in self._storage.offsets())
