"""Takes over the messages that a RocketMQ 5 broker has delivered to pop consumers.

RocketMQ records them in the topic `rmq_sys_REVIVE_LOG_<cluster>`: a check point (tag `ck`) for each
pop, and acks (`ack`, or `bAck` for several). The committed offsets are after these messages, so
this module puts the messages without an ack in flight, and then commits the end of the topic.
Source: `PopCheckPoint`, `AckMsg`, `BatchAckMsg`, `PopReviveService`.
"""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyrocket.base.clock import Clock
from pyrocket.broker.pop.events import Event, Repeat, Saved, Start
from pyrocket.broker.pop.group import GroupState, Put, QueueKey
from pyrocket.filters.message_filter import EVERYTHING
from pyrocket.formats.properties import TAGS, decode_properties
from pyrocket.formats.record_decode import Record
from pyrocket.metadata.groups import OffsetsByQueue
from pyrocket.services.consumption import Consumption

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
_CHECK_POINT, _ACK, _ACKS = "ck", "ack", "bAck"
_READ = 1000
_log = logging.getLogger(__name__)

_Pop = tuple[str, str, int, int]
"""Group, topic, queue and time of a pop."""


@dataclass
class _Popped:
    """The messages of pops, by offset, with the time when each becomes visible; and their acks."""

    offsets: dict[_Pop, dict[int, int]]
    acks: set[tuple[_Pop, int]]

    def add_record(self, record: Record) -> None:
        """Add a check point or an ack; log a record that cannot be parsed."""
        try:
            tag = decode_properties(record.properties).get(TAGS, "")
            self._add(tag, json.loads(record.body))
        except (ValueError, KeyError, TypeError) as error:
            _log.error("%s %d cannot be parsed: %s", record.topic, record.queue_offset, error)

    def _add(self, tag: str, body: dict[str, Any]) -> None:
        pop = str(body["c"]), str(body["t"]), int(body["q"]), int(body["pt"])
        if tag == _CHECK_POINT:
            visible = pop[3] + int(body["it"])
            self.offsets.setdefault(pop, {}).update(dict.fromkeys(_handed_out(body), visible))
        elif tag in (_ACK, _ACKS):
            self.acks |= {(pop, int(offset)) for offset in body.get("aol") or [body["ao"]]}

    def left(self) -> Iterator[tuple[str, QueueKey, list[int], int]]:
        """Yield the messages of each pop that are not acked."""
        for pop, offsets in self.offsets.items():
            group, topic, queue_id, _ = pop
            rest = sorted(offset for offset in offsets if (pop, offset) not in self.acks)
            if rest:
                yield group, (topic, queue_id), rest, max(offsets[offset] for offset in rest)


def take_over(
    storage: Consumption, state_of: Callable[[str], GroupState], put: Put, now: Clock
) -> None:
    """Take over the messages that a RocketMQ 5 broker has in flight, and consume its topic.

    now: The time of the states; RocketMQ's times are those of the store's clock.
    """
    ahead_ms = now() - storage.now()
    ends = {place: storage.bounds(*place).maximum for place in storage.queues(REVIVE_PREFIX)}
    committed = storage.offsets()
    starts = {
        (topic, queue_id): committed.get((topic, REVIVE_GROUP), {}).get(queue_id, 0)
        for topic, queue_id in ends
    }
    popped = _Popped({}, set())
    for place, end in ends.items():
        _read(storage, place, starts[place], end, popped)
    stored = [
        put(state_of(group), events)
        for group, place, offsets, visible in popped.left()
        if (events := _events(storage, state_of(group), place, offsets, visible + ahead_ms))
    ]
    for future in stored:
        future.result(30)
    if ends != starts:
        storage.flush()
        storage.change_offsets(lambda table: _consume(table, ends))


def _read(storage: Consumption, place: QueueKey, start: int, end: int, popped: _Popped) -> None:
    while start < end:
        fetched = storage.fetch(*place, start, min(start + _READ, end), EVERYTHING, _READ)
        for record in fetched.records:
            popped.add_record(record)
        start = max(fetched.reached, start + 1)


def _handed_out(body: dict[str, Any]) -> list[int]:
    """Return the offsets of a check point that are not acked in its bit map."""
    start, bits = int(body["so"]), int(body.get("bm", 0))
    steps = body.get("d") or range(int(body["n"]))
    return [start + int(step) for index, step in enumerate(steps) if not bits >> index & 1]


def _events(
    storage: Consumption, state: GroupState, place: QueueKey, offsets: list[int], visible: int
) -> list[Event]:
    """Return the events for one pop; none if the topic or the group's offsets were deleted."""
    if storage.topic(place[0]) is None:
        return []
    events: list[Event] = [Repeat(state.name, *place, offsets, visible)]
    with state.lock:
        if place not in state.queues:
            committed = storage.offsets().get((place[0], state.name), {}).get(place[1])
            if committed is None:
                return []
            start = Start(state.name, *place, min(committed, storage.bounds(*place).maximum))
            events = [start, Saved(state.name, *place, committed, committed), *events]
    _log.info("group %s: took over %d messages in flight", state.name, len(offsets))
    return events


def _consume(table: dict[tuple[str, str], OffsetsByQueue], ends: dict[QueueKey, int]) -> bool:
    for (topic, queue_id), end in ends.items():
        table.setdefault((topic, REVIVE_GROUP), {})[queue_id] = end
    return True
