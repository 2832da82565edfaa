"""Builds copies of due messages for their real topics and queues.

A copy differs from the pending record only in its topic, queue, offsets and store time. As in
RocketMQ, a copy keeps the properties DELAY, REAL_TOPIC and REAL_QID. A copy also keeps the flag of
a committed transaction. Source: `ScheduleMessageService.messageTimeup`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.engine.appender import runs_of
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.property_columns import PropertyColumns, real_places
from pyrocket.formats.record import BLANK_BYTES, MAX_TOPIC_BYTES, SYS_TRANSACTION_MASK
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_crc import crc_lengths
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.values.admin import TopicConfig

_NEVER_DELIVERED_TO = frozenset([HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC])
"""RocketMQ drops messages for the half topic; elsewhere they would never become visible."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DueCopies:
    """Copies of the first `taken` messages, except `dropped` messages that have no copy."""

    batches: list[EncodedBatch]
    taken: int
    dropped: int = 0


def due_copies(
    run: RecordFields,
    topics: Mapping[str, TopicConfig],
    *,
    file_bytes: int,
    max_batches: int,
) -> DueCopies:
    """Return copies of checked records, in their order.

    The order matters: only the first copies may survive a power failure, and recovery takes the
    last surviving copy as the end of delivery (`skip_delivered`). Therefore a batch ends where the
    topic changes, and `max_batches` may not suffice for all messages.

    A message for a deleted topic, or without a valid topic and queue, is dropped with a warning. A
    message whose queue no longer exists is delivered to another queue of the topic.
    """
    places = real_places(PropertyColumns(run.properties()))
    known = [_Target.of(topics, name) for name in places.names]
    queue_ids = _queue_ids(known, places.codes, places.queue_ids)
    longer = np.array([each.name_bytes for each in known] or [0])[places.codes] - run.topic_length
    longer = longer - crc_lengths(run.properties())
    kept = (queue_ids >= 0) & (run.sizes + longer <= file_bytes - BLANK_BYTES)
    rows = np.flatnonzero(kept)
    parts = runs_of(places.codes[rows])
    taken = len(run) if len(parts) <= max_batches else int(rows[parts[max_batches][0]])
    batches = [
        _copy(run, rows[first:last], places.names[places.codes[rows[first]]], queue_ids)
        for first, last in parts[:max_batches]
    ]
    dropped = np.flatnonzero(~kept[:taken])
    if len(dropped):
        _log_dropped(run, dropped, {each.name for each in known if not each.queues})
    return DueCopies(batches, taken, len(dropped))


@dataclass(frozen=True)
class _Target:
    """The current state of a topic; `queues` is 0 if nothing can be delivered to it."""

    name: str
    name_bytes: int
    queues: int
    write_queues: int

    @staticmethod
    def of(topics: Mapping[str, TopicConfig], name: str) -> "_Target":
        length, topic = len(name.encode()), topics.get(name)
        if topic is None or name in _NEVER_DELIVERED_TO or length > MAX_TOPIC_BYTES:
            return _Target(name, length, 0, 1)
        queues = max(topic.read_queues, topic.write_queues)
        return _Target(name, length, queues, topic.write_queues)


def _queue_ids(known: list[_Target], codes: Ints, wanted: Ints) -> Ints:
    """Return the queue id of each message; -1 if it cannot be delivered."""
    if not known:
        return np.full(len(codes), -1)
    queues = np.array([each.queues for each in known])[codes]
    write_queues = np.array([each.write_queues for each in known])[codes]
    placed = np.where(wanted < queues, wanted, wanted % write_queues)
    return np.where((codes >= 0) & (queues > 0), np.where(wanted < 0, -1, placed), -1)


def _copy(
    run: RecordFields, rows: npt.NDArray[np.int64], topic: str, queue_ids: Ints
) -> EncodedBatch:
    changes = Changes(transaction=run.sys_flag[rows] & SYS_TRANSACTION_MASK)
    return copy_records(run, rows, topic, queue_ids[rows].astype(np.int32), changes)


def _log_dropped(run: RecordFields, rows: npt.NDArray[np.int64], missing: set[str]) -> None:
    _log.warning(
        "%d delayed messages are dropped, the first at log offset %d: %s.",
        len(rows),
        int(run.physical_offset[rows[0]]),
        f"nothing can be delivered to topic {min(missing)!r}"
        if missing
        else "their properties contain no valid queue",
    )
