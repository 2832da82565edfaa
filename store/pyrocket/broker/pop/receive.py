"""`Receiver`: receives messages for a group from the queues of a topic and its retry topics."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyrocket.base.clock import Clock
from pyrocket.broker.pop.draw import AttemptLimits, Drawn, DrawRequest, QueueDraw, Room
from pyrocket.broker.pop.events import Event, Saved, Start
from pyrocket.broker.pop.group import Batch, GroupState, Put, QueueKey
from pyrocket.broker.pop.queue import QueueState
from pyrocket.broker.pop.values import Delivery, PopSettings, Received, nothing_to_store
from pyrocket.errors import TopicNotFoundError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.receipt import Receipt, Receipts, new_pop
from pyrocket.formats.system_topics import RETRY_PREFIX, retry_topics
from pyrocket.services.consumption import Consumption
from pyrocket.values.admin import GroupConfig
from pyrocket.values.message import StoredMessage


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The arguments of `Pop.receive`."""

    topic: str
    max_messages: int
    invisible_ms: int
    where: MessageFilter
    attempt_id: str
    longest: int | None


class Receiver:
    """Receives messages for the groups of one store."""

    def __init__(
        self, storage: Consumption, settings: PopSettings, receipts: Receipts, put: Put, now: Clock
    ) -> None:
        self._storage, self._settings, self._receipts = storage, settings, receipts
        self._put, self._now = put, now

    def receive(self, state: GroupState, config: GroupConfig, wanted: Wanted) -> Received:
        """Deliver messages; see `Pop.receive`."""
        now, attempt_id = self._now(), wanted.attempt_id if config.fifo else ""
        with state.lock:
            if attempt_id and (again := self._again(state, wanted, now)):
                return again
            request = DrawRequest(
                group=state.name,
                topic=wanted.topic,
                where=wanted.where,
                fifo=config.fifo,
                limits=AttemptLimits.of(config, self._settings),
                now=now,
                visible=now + wanted.invisible_ms,
                pop=new_pop(),
                longest=wanted.longest,
            )
            places = self.places(state, wanted.topic)
            room = self._room(state, wanted.max_messages)
            received, receipts = self._draw(state, request, places, room)
            if attempt_id and receipts:
                state.remember(attempt_id, Batch(wanted.topic, receipts, received.stored))
            return received

    def _room(self, state: GroupState, max_messages: int) -> Room:
        bounds, retries = self._settings, state.retries
        return Room(
            messages=min(max_messages, bounds.max_batch),
            new=bounds.max_in_flight - (state.in_flight - retries),
            retries=bounds.max_in_flight - retries,
            bytes=bounds.max_bytes,
            scan=bounds.max_scan,
        )

    def places(self, state: GroupState, topic: str) -> Iterator[QueueKey]:
        """Yield the queues from which to receive, in order. Raises TopicNotFoundError."""
        known = self._storage.topic(topic)
        if known is None:
            raise TopicNotFoundError(
                f"the topic {topic!r} does not exist.",
                remedy="Create the topic first.",
            )
        for name in self._retry_topics(state.name, topic):
            retries = self._storage.topic(name) if name != topic else None
            for number in range(retries.read_queues if retries else 0):
                yield name, number
        state.turn += 1
        for number in range(known.read_queues):
            yield topic, (state.turn + number) % known.read_queues

    def _retry_topics(self, group: str, topic: str) -> Iterator[str]:
        """Yield the topics with retries, except topics that belong to another group.

        The retry topic of version 1 for group `etl` and topic `orders` has the same name as the
        retry topic of a group `etl_orders`.
        """
        for name in retry_topics(group, topic):
            owner = name.removeprefix(RETRY_PREFIX)
            if owner == group or self._storage.group(owner) is None:
                yield name

    def _draw(
        self, state: GroupState, request: DrawRequest, places: Iterator[QueueKey], room: Room
    ) -> tuple[Received, list[tuple[QueueKey, Receipt]]]:
        events: list[Event] = []
        deliveries: list[tuple[QueueKey, Drawn]] = []
        more = False
        for place in places:
            if room.is_full:
                break
            known = state.queues.get(place)
            if not (known or self._storage.max_offset(*place)):
                continue  # An empty queue.
            queue, opening = (known, []) if known else self._open(request, place)
            draw = QueueDraw(self._storage, queue, request, place, room)
            draw.draw()
            deliveries += [(place, drawn) for drawn in draw.drawn]
            more = more or draw.has_more
            if changes := draw.events():
                events += [*opening, *changes]
        stored = self._put(state, events) if events else nothing_to_store()
        receipts = [(place, _receipt(place, drawn, request)) for place, drawn in deliveries]
        messages = tuple(
            self._delivery(drawn.message, request.topic, receipt, request.group, request.visible)
            for (_, drawn), (_, receipt) in zip(deliveries, receipts, strict=True)
        )
        return Received(messages, stored, has_more=more and bool(events)), receipts

    def _open(self, request: DrawRequest, place: QueueKey) -> tuple[QueueState, list[Event]]:
        """Return the state and events for a queue from which the group has not received yet."""
        committed, first = self.first_offset(request.group, place)
        before = -1 if committed is None else committed
        start = Start(request.group, *place, first)
        saved = Saved(request.group, *place, before, before)
        queue = QueueState()
        queue.apply(start)
        queue.apply(saved)
        return queue, [start, saved]

    def first_offset(self, group: str, place: QueueKey) -> tuple[int | None, int]:
        """Return a group's committed offset in a queue, and the offset at which it starts."""
        topic, queue_id = place
        committed = self._storage.offsets().get((topic, group), {}).get(queue_id)
        known = self._storage.bounds(topic, queue_id)
        if committed is None:
            return None, known.minimum
        return committed, min(max(committed, known.minimum), known.maximum)

    def _again(self, state: GroupState, wanted: Wanted, now: int) -> Received | None:
        """Return the messages of an earlier receive with this attempt that are still in flight."""
        batch, topic = state.batch(wanted.attempt_id), wanted.topic
        if batch is None or batch.topic != topic:
            return None
        deliveries = []
        for place, receipt in batch.receipts:
            row = state.row(place, receipt, now)
            record = (
                self._storage.read(*place, receipt.offset) if row is not None and row >= 0 else None
            )
            if row is not None and record is not None:
                visible = int(state.queues[place].flight.visible[row])
                message = record.to_message(wanted.longest)
                deliveries.append(self._delivery(message, topic, receipt, state.name, visible))
        return Received(tuple(deliveries), batch.stored) if deliveries else None

    def _delivery(
        self, message: StoredMessage, origin: str, receipt: Receipt, group: str, visible: int
    ) -> Delivery:
        if origin != message.topic:
            message = replace(message, topic=origin)
        handle = self._receipts.sign(group, origin, receipt)
        return Delivery(
            message=message, attempt=receipt.attempt, handle=handle, invisible_until=visible
        )


def _receipt(place: QueueKey, drawn: Drawn, request: DrawRequest) -> Receipt:
    names = (request.topic, *retry_topics(request.group, request.topic))
    return Receipt(
        names.index(place[0]), place[1], drawn.message.queue_offset, drawn.attempt, request.pop
    )
