"""`Handles`: acks and other changes of messages in flight, by their receipt handles."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyrocket.base.clock import Clock
from pyrocket.broker.pop.events import Ack, Event, Show
from pyrocket.broker.pop.group import GroupState, GroupStates, Put, QueueKey
from pyrocket.broker.pop.retries import dead_letter
from pyrocket.broker.pop.values import Acked, Changed, Stored, nothing_to_store
from pyrocket.formats.receipt import Receipt, Receipts, new_pop
from pyrocket.formats.system_topics import dead_letter_topic, retry_topics
from pyrocket.services.consumption import Consumption

EventOf = Callable[[QueueKey, int, Sequence[Receipt]], Event]
"""Returns the event for some messages of one queue, given the queue's cursor."""


class Handles:
    """Changes messages in flight of the groups of one store."""

    def __init__(
        self, storage: Consumption, states: GroupStates, receipts: Receipts, put: Put, now: Clock
    ) -> None:
        self._storage, self._states = storage, states
        self._receipts, self._put, self._now = receipts, put, now

    def ack(self, group: str, topic: str, handles: Sequence[str]) -> Acked:
        """Ack messages. A handle becomes invalid when its message is acked or visible again.

        The handle of an acked message remains valid in a FIFO group, and while the ack may not be
        durable. If the ack cannot be stored, the message is received again after a minute. If this
        raises BrokerBusyError, nothing has changed.
        """

        def events(place: QueueKey, cursor: int, receipts: Sequence[Receipt]) -> Event:
            return Ack(group, *place, cursor, sorted(receipt.offset for receipt in receipts))

        return self._change(group, topic, handles, events, ends=True)

    def change_invisible(self, group: str, topic: str, handle: str, invisible_ms: int) -> Changed:
        """Make a message visible after `invisible_ms`, and return its new handle.

        Raises BrokerBusyError.
        """
        state, visible = self._states.known(group), self._now() + max(invisible_ms, 0)
        with state.lock:
            delivery = self._find(state, topic, handle)
            if delivery is None:
                return Changed(None, nothing_to_store())
            place, receipt = delivery
            renewed = replace(receipt, pop=new_pop())
            cursor = state.queues[place].next
            show = Show(group, *place, cursor, [receipt.offset], visible, renewed.pop)
            stored = self._put(state, [show])
        signed = self._receipts.sign(group, topic, renewed)
        return Changed(signed, stored)

    def extend(self, group: str, topic: str, handles: Sequence[str], invisible_ms: int) -> Acked:
        """Make messages visible after `invisible_ms`; their handles remain valid.

        Used to renew messages for clients, and to release the messages of a disconnected client.
        Raises BrokerBusyError.
        """
        visible = self._now() + max(invisible_ms, 0)

        def events(place: QueueKey, cursor: int, receipts: Sequence[Receipt]) -> Event:
            offsets = sorted(receipt.offset for receipt in receipts)
            return Show(group, *place, cursor, offsets, visible, 0)

        return self._change(group, topic, handles, events)

    def forward_to_dlq(self, group: str, topic: str, handle: str) -> Acked:
        """Move a message to the group's dead-letter topic. Raises BrokerBusyError.

        As with `ack`, the handle of a dead letter may remain valid. The first dead letter of a
        group creates the topic, and waits for the write lock.
        """
        if self._receipts.parse(group, topic, handle) is None or not self._states.has(group):
            return Acked((False,), nothing_to_store())
        self._storage.ensure_topics({dead_letter_topic(group): 1})
        state = self._states.known(group)
        with state.lock:
            delivery = self._find(state, topic, handle, ends=True, moved=True)
            if delivery is None:
                return Acked((False,), nothing_to_store())
            place, receipt = delivery
            stored = state.append_of_ack(place, receipt.offset) or self._bury(state, place, receipt)
            return Acked((True,), stored, wakes=self._is_fifo(group))

    def _bury(self, state: GroupState, place: QueueKey, receipt: Receipt) -> Stored:
        """Move a message to the dead-letter topic, unless it is acked. Requires the lock."""
        queue, offset = state.queues[place], receipt.offset
        record = self._storage.read(*place, offset) if queue.flight.find(offset) >= 0 else None
        letters = [dead_letter(record, state.name, attempts=receipt.attempt)] if record else []
        return self._put(state, [Ack(state.name, *place, queue.next, [offset])], letters)

    def _change(
        self,
        group: str,
        topic: str,
        handles: Sequence[str],
        event_of: EventOf,
        *,
        ends: bool = False,
    ) -> Acked:
        """Change the messages of the valid handles, with one event for each queue."""
        state = self._states.known(group)
        with state.lock:
            valid, by_place = [], dict[QueueKey, list[Receipt]]()
            for handle in handles:
                delivery = self._find(state, topic, handle, ends=ends)
                valid.append(delivery is not None)
                if delivery:
                    by_place.setdefault(delivery[0], []).append(delivery[1])
            events = [
                event_of(place, state.queues[place].next, receipts)
                for place, receipts in by_place.items()
            ]
            # Also for acked messages, because the record of the ack may not be durable yet.
            stored = self._put(state, events) if events else nothing_to_store()
            return Acked(tuple(valid), stored, wakes=self._is_fifo(group) and bool(events))

    def _find(
        self, state: GroupState, topic: str, handle: str, *, ends: bool = False, moved: bool = False
    ) -> tuple[QueueKey, Receipt] | None:
        """Return the queue and receipt of a valid handle; None if it is invalid.

        ends: Whether the handle is used for an ack or a dead letter, both of which may be repeated.
        moved: Whether it is used for a dead letter.

        In a FIFO group, a message that is not in flight was acked, because retries stay
        in their queue.
        """
        receipt = self._receipts.parse(state.name, topic, handle)
        if receipt is None:
            return None
        name = (topic, *retry_topics(state.name, topic))[receipt.source]
        place = name, receipt.queue_id
        row = state.row(place, receipt, self._now())
        if row is None:
            return None
        if row < 0 and not self._is_fifo(state.name):
            ends = ends and state.may_end_again(place, receipt.offset, moved=moved)
        return (place, receipt) if row >= 0 or ends else None

    def _is_fifo(self, group: str) -> bool:
        config = self._storage.group(group)
        return config is not None and config.fifo
