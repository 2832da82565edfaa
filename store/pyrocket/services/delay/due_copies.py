"""Parked messages as they are delivered: copies for the topics and queues they were sent to.

A copy differs from the parked record in its places and its store time alone: its properties still
say DELAY, REAL_TOPIC and REAL_QID, as in RocketMQ, and it keeps the bits of a committed
transaction. Source: `ScheduleMessageService.messageTimeup`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyrocket.engine.placing import runs_of
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.property_columns import PropertyColumns, real_places
from pyrocket.formats.record import BLANK_BYTES, MAX_TOPIC_BYTES, SYS_TRANSACTION_MASK
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_crc import crc_lengths
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyrocket.metadata.topics import TopicConfig

_NEVER_DELIVERED_TO = frozenset([HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC])
"""RocketMQ drops what is for the half topic; in the others it would be parked again, for ever."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Copies:
    """The first `taken` of the messages, ready to be appended; `dropped` of them are not."""

    batches: list[EncodedBatch]
    taken: int
    dropped: int = 0


def due_copies(
    run: RecordFields,
    topics: Mapping[str, TopicConfig],
    *,
    file_bytes: int,
    most_batches: int,
) -> Copies:
    """Return copies of the messages of a checked run, in their order.

    That order matters: a loss of power may leave the first of them, and where a service had come to
    is found by the last that is there (`redelivery`). So a batch ends where the topic changes, and
    `most_batches` may be too few for all.

    Dropped, with a warning, is what nobody could ever read: messages for topics that have been
    deleted, or without a place. A queue that the topic has lost since gives way to one it has.
    """
    places = real_places(PropertyColumns(run.properties()))
    known = [_Target.of(topics, name) for name in places.names]
    queue_ids = _queue_ids(known, places.codes, places.queue_ids)
    longer = np.array([each.name_bytes for each in known] or [0])[places.codes] - run.topic_length
    longer = longer - crc_lengths(run.properties())
    kept = (queue_ids >= 0) & (run.sizes + longer <= file_bytes - BLANK_BYTES)
    rows = np.flatnonzero(kept)
    parts = runs_of(places.codes[rows])
    taken = len(run) if len(parts) <= most_batches else int(rows[parts[most_batches][0]])
    batches = [
        _copy(run, rows[first:last], places.names[places.codes[rows[first]]], queue_ids)
        for first, last in parts[:most_batches]
    ]
    dropped = np.flatnonzero(~kept[:taken])
    if len(dropped):
        _write_files(run, dropped, {each.name for each in known if not each.queues})
    return Copies(batches, taken, len(dropped))


@dataclass(frozen=True)
class _Target:
    """A topic as it is now: its queues, none if nothing can go there, and those to be sent to."""

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
    """Return the queue of each message; -1 where there is none."""
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


def _write_files(run: RecordFields, rows: npt.NDArray[np.int64], gone: set[str]) -> None:
    _log.warning(
        "%d delayed messages are dropped, the first at log offset %d: %s.",
        len(rows),
        int(run.physical_offset[rows[0]]),
        f"nothing can go to a topic {min(gone)!r}" if gone else "they name no queue to go to",
    )
