"""Selects the messages of one `receive` from one queue. Returns events, and changes no state."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby

import numpy as np

from pyrocket.broker.pop.events import Ack, Deliver, Event
from pyrocket.broker.pop.queue import QueueState
from pyrocket.broker.pop.retries import origin_of
from pyrocket.broker.pop.values import PopSettings
from pyrocket.filters.message_filter import EVERYTHING, MessageFilter
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.properties import RETRY_TOPIC, SHARDING_KEY, decode_properties
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import retry_topic
from pyrocket.services.consumption import Consumption, Fetched
from pyrocket.values.admin import GroupConfig
from pyrocket.values.message import StoredMessage

_MAX_NEW = 1024
"""Maximum messages of a queue that one receive puts in flight, delivered or not."""


@dataclass(frozen=True)
class AttemptLimits:
    """Decides whether a message is delivered again, or moved to another topic by a sweep.

    max_attempts: Deliveries after which a message is a dead letter.
    first_attempts: See `PopSettings`.
    stays: Whether all deliveries are from the message's own queue.
    """

    max_attempts: int
    first_attempts: int
    stays: bool

    @classmethod
    def of(cls, config: GroupConfig, settings: PopSettings) -> "AttemptLimits":
        """Return the limits of a group."""
        stays = config.fifo or config.retry_queues <= 0
        return cls(config.max_attempts, settings.first_attempts, stays)

    def may_deliver(
        self, attempts: Ints, since: Ints
    ) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Return a mask of the messages that may be delivered; a sweep moves the others."""
        first = attempts < self.first_attempts
        again = True if self.stays else first | (since == 0)
        return np.asarray((attempts < self.max_attempts) & again)


@dataclass(frozen=True, kw_only=True)
class DrawRequest:
    """The parameters of one `receive`."""

    group: str
    topic: str
    where: MessageFilter
    fifo: bool
    limits: AttemptLimits
    now: int
    visible: int
    pop: int
    longest: int | None


@dataclass
class Room:
    """The remaining limits of one `receive`.

    Attributes:
        messages: Messages to return.
        new: Messages to put in flight, whether delivered or waiting for earlier messages.
        retries: Messages of the group's retry topic to put in flight. This limit is separate,
            because retries of a topic that is not consumed must not stop the group's other topics.
        bytes: Total size of the inflated bodies; the first message may be larger.
        scan: Messages to examine for a match of the filter.
    """

    messages: int
    new: int
    retries: int
    bytes: int
    scan: int

    def take(self, message: StoredMessage) -> None:
        """Subtract one message from the limits."""
        self.messages -= 1
        self.bytes -= len(message.body)

    @property
    def is_full(self) -> bool:
        """Whether no more messages can be returned."""
        return self.messages <= 0 or self.bytes <= 0


@dataclass(frozen=True)
class Drawn:
    """A delivered message, and the number of its attempt."""

    message: StoredMessage
    attempt: int


@dataclass
class _Rows:
    """The rows of a `Deliver`."""

    offsets: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)

    def add(self, offset: int, attempts: int, *, delivered: bool, key: int) -> None:
        self.offsets.append(offset)
        self.attempts.append(attempts)
        self.delivered.append(int(delivered))
        self.keys.append(key)


class QueueDraw:
    """Selects messages from one queue of a topic, or of one of the topic's retry topics."""

    def __init__(
        self,
        storage: Consumption,
        state: QueueState,
        request: DrawRequest,
        place: tuple[str, int],
        room: Room,
    ) -> None:
        self._storage, self._state, self._request = storage, state, request
        self._room = room
        self._topic, self._queue_id = place
        self._is_retry = self._topic != request.topic
        # RocketMQ 4's retry topic contains the retries of all topics of the group.
        self._is_mixed = self._is_retry and self._topic == retry_topic(request.group)
        self._rows, self._acked = _Rows(), list[int]()
        self._next = state.next
        self._wanted = key_of(request.topic) if self._is_mixed else 0
        self._blocked: set[int] = set()
        self.drawn: list[Drawn] = []
        self.has_more = False

    def draw(self) -> None:
        """Select messages within the limits."""
        has_new = self._next < self._storage.max_offset(self._topic, self._queue_id)
        if not has_new and not len(self._state.flight.visible_rows(self._request.now)):
            return
        self._draw_again()
        # In a FIFO group, earlier messages that were not examined may have the same key.
        is_next = not (self._request.fifo and self.has_more)
        if is_next and not self._room.is_full and self._new_room() > 0:
            self._draw_new()

    def _new_room(self) -> int:
        return self._room.retries if self._is_mixed else self._room.new

    def _take_new(self, count: int) -> None:
        if self._is_mixed:
            self._room.retries -= count
        else:
            self._room.new -= count

    def events(self) -> list[Event]:
        """Return the state changes of the draw."""
        request, rows = self._request, self._rows
        place = request.group, self._topic, self._queue_id
        events: list[Event] = []
        if self._acked:
            events.append(Ack(*place, self._state.next, self._acked))
        if rows.offsets or self._next > self._state.next:
            keys = rows.keys if any(rows.keys) else []
            columns = rows.offsets, rows.attempts, rows.delivered, keys
            cursors, times = (self._state.next, self._next), (request.now, request.visible)
            events.append(Deliver(*place, *cursors, request.pop, *times, *columns))
        return events

    def _draw_again(self) -> None:
        """Select messages in flight that are visible and not blocked by earlier messages."""
        flight, request = self._state.flight, self._request
        if request.fifo and not self._is_retry:
            every = flight.rows()
            hidden = flight.visible[every] > request.now
            dead = flight.attempt[every] >= request.limits.max_attempts
            self._blocked = {*np.unique(flight.key[every[hidden | dead]]).tolist()} - {0}
        rows = flight.visible_rows(request.now)
        if not len(rows):
            return
        deleted = flight.offset[rows] < self._storage.bounds(self._topic, self._queue_id).minimum
        self._acked += flight.offset[rows[deleted]].tolist()
        rows = rows[~deleted]
        rows = rows[request.limits.may_deliver(flight.attempt[rows], flight.since[rows])]
        if self._blocked:
            rows = rows[~np.isin(flight.key[rows], [*self._blocked])]
        if self._is_mixed:
            rows = rows[np.isin(flight.key[rows], [self._wanted, 0])]
        self.has_more = len(rows) > self._room.messages
        rows = rows[: self._room.messages]
        offsets = flight.offset[rows].tolist()
        for (offset, record), row in zip(self._read(offsets), rows.tolist(), strict=False):
            self._draw_row(offset, row, record)
            if self._room.is_full:
                break

    def _draw_row(self, offset: int, row: int, record: Record | None) -> None:
        flight = self._state.flight
        if record is None:  # Deleted, or unreadable.
            self._acked.append(offset)
            return
        properties, attempts = decode_properties(record.properties), int(flight.attempt[row])
        # Without a key, the record of its delivery was lost.
        key = int(flight.key[row]) or self._key(record, properties)
        if (self._is_mixed and key != self._wanted) or key in self._blocked:
            self._rows.add(offset, attempts, delivered=False, key=key)
            return
        is_wanted = self._is_retry or self._request.where.matches(properties)
        is_wanted = is_wanted and not self._is_foreign(properties)
        message = self._message_of(record) if is_wanted else None
        if message is None:
            self._acked.append(offset)
            return
        self._rows.add(offset, attempts + 1, delivered=True, key=key)
        self._hand_out(message, attempts + 1)

    def _message_of(self, record: Record) -> StoredMessage | None:
        return self._storage.message_of(record, self._request.longest)

    def _hand_out(self, message: StoredMessage, attempt: int) -> None:
        self.drawn.append(Drawn(message, attempt))
        self._room.take(message)

    def _is_foreign(self, properties: dict[str, str]) -> bool:
        """Whether a message in a retry topic of version 1 belongs to a group with a similar name.

        The other group may have been deleted; see `Receiver._retry_topics`.
        """
        if not self._is_retry or self._is_mixed:
            return False
        return properties.get(RETRY_TOPIC, self._request.topic) != self._request.topic

    def _key(self, record: Record, properties: dict[str, str]) -> int:
        if self._is_mixed:
            return key_of(origin_of(record, properties, self._request.group))
        is_ordered = self._request.fifo and not self._is_retry and SHARDING_KEY in properties
        return key_of(properties[SHARDING_KEY]) if is_ordered else 0

    def _read(self, offsets: list[int]) -> Iterator[tuple[int, Record | None]]:
        """Yield each offset with its message, or None if the message cannot be read."""
        for first, last in _runs(offsets):
            while first <= last:
                count = last - first + 1
                fetched = self._fetch(first, last + 1, EVERYTHING, count)
                records = {record.queue_offset: record for record in fetched.records}
                for offset in range(first, min(fetched.reached, last + 1)):
                    yield offset, records.get(offset)
                first = max(fetched.reached, first + 1)

    def _fetch(self, start: int, end: int, where: MessageFilter, limit: int) -> Fetched:
        room = max(self._room.bytes, 1)
        return self._storage.fetch(self._topic, self._queue_id, start, end, where, limit, room)

    def _draw_new(self) -> None:
        known, room = self._storage.bounds(self._topic, self._queue_id), self._room
        begin = max(self._next, known.minimum)
        end = min(known.maximum, begin + room.scan)
        where = EVERYTHING if self._is_retry else self._request.where
        added, most = 0, min(self._new_room(), max(_MAX_NEW, room.messages))
        while self._next < end and not room.is_full and added < most:
            limit = min(room.messages, most - added)
            fetched = self._fetch(self._next, end, where, limit)
            self._next = max(self._next, fetched.reached)
            for record in fetched.records:
                if room.is_full:
                    self._next = record.queue_offset
                    break
                self._draw_record(record)
                added += 1
        self._take_new(added)
        room.scan -= max(self._next - begin, 0)
        self.has_more = self.has_more or self._next < known.maximum

    def _draw_record(self, record: Record) -> None:
        properties = decode_properties(record.properties)
        if self._is_foreign(properties):
            return
        attempts = record.reconsume_times if self._is_retry else 0
        key = self._key(record, properties)
        is_wanted = key == self._wanted or not self._is_mixed
        is_alive = attempts < self._request.limits.max_attempts
        delivered = is_wanted and is_alive and key not in self._blocked
        message = self._message_of(record) if delivered else None
        if delivered and message is None:
            return
        self._rows.add(record.queue_offset, attempts + delivered, delivered=delivered, key=key)
        if message is not None:
            self._hand_out(message, attempts + 1)


def key_of(text: str) -> int:
    """Return a hash of a topic or sharding key: never 0, and the same in all processes."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) or 1


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last offset of each run of consecutive offsets."""
    for _, group in groupby(enumerate(offsets), lambda numbered: numbered[1] - numbered[0]):
        run = [offset for _, offset in group]
        yield run[0], run[-1]
