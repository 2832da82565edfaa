"""Builds op messages, committed messages and copies of half messages, without appending them.

Source: `TransactionalMessageBridge`, `EndTransactionProcessor.endMessageTransaction`,
`DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrocket.engine.delayed_routing import DelayRouter, Destination
from pyrocket.engine.reader import Reader, read_undamaged
from pyrocket.errors import TransactionError
from pyrocket.formats.fastjson import parse_java_long
from pyrocket.formats.half_message import OP_TAGS, HalfMessage, change_properties, wants_delay
from pyrocket.formats.message_keys import MessageKeys, keys_of_message
from pyrocket.formats.properties import (
    CRC32,
    DELAY,
    KEYS,
    MAX_PROPERTIES_BYTES,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from pyrocket.formats.record import SYS_COMMIT, SYS_TRANSACTION_MASK, V6_BYTES, encode_record
from pyrocket.formats.record_batch import EncodedBatch, batch_of_records
from pyrocket.formats.record_copy import Changes, copy_records
from pyrocket.formats.record_decode import Record, decode_record
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.formats.system_topics import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import Message

_GAP = 64
"""Up to this number of unneeded half messages, reading them costs less than another read."""

_NO_KEYS = MessageKeys(np.zeros(0, np.int64), np.zeros(0, np.int64))
_OP_PROPERTIES = encode_properties({WAIT: "true", TAGS: OP_TAGS})

PropertyChanges = Mapping[int, Mapping[str, str]]
"""Queue offset of a half message → the properties to set in its copy."""


def op_messages(half_offsets: Iterable[int], now_ms: int) -> EncodedBatch:
    """Return an op message for each half message, in a form that every RocketMQ version reads."""
    records = [
        encode_record(
            topic=OP_TOPIC,
            queue_id=0,
            body=b"%d" % offset,
            properties=_OP_PROPERTIES,
            born_timestamp=now_ms,
        )
        for offset in half_offsets
    ]
    return batch_of_records(OP_TOPIC, 0, records, OP_TAGS, _NO_KEYS)


def checked_copies(
    reader: Reader, changes: PropertyChanges, *, discard: bool = False
) -> list[EncodedBatch]:
    """Return a check's copies of half messages, with flag and reconsumeTimes 0 as in RocketMQ.

    With `discard`, return copies for TRANS_CHECK_MAX_TIME_TOPIC, which keep flag and times.
    """
    topic, copies = DISCARD_TOPIC if discard else HALF_TOPIC, list[EncodedBatch]()
    for piece, rows in _rows(reader, changes):
        before = piece.records.properties.take(pa.array(rows)).to_pylist()
        offsets = (piece.first_offset + rows).tolist()
        after = [_change(block, changes[at]) for block, at in zip(before, offsets, strict=True)]
        own = Changes(properties=pa.array(after, pa.binary()), forget=not discard)
        copies.append(_copies(piece, rows, topic, own))
    return copies


def unchanged_copies(reader: Reader, half_offsets: Collection[int]) -> list[EncodedBatch]:
    """Return copies of half messages for the half queue with unchanged properties."""
    return [
        _copies(piece, rows, HALF_TOPIC, Changes()) for piece, rows in _rows(reader, half_offsets)
    ]


def count_check(half: HalfMessage) -> dict[str, str]:
    """Return the properties with an incremented check counter of a half message."""
    return {TRANSACTION_CHECK_TIMES: str((half.checks or 0) + 1)}


def keep_immune(half: HalfMessage, max_checks: int) -> dict[str, str]:
    """Return the properties that renew a half message during its immunity time.

    RocketMQ counts a renewal as a check, and may discard a message with a long immunity time before
    its producer is ever asked. Here, at least one check always remains.
    """
    first = half.queue_offset if half.prepared is None else half.prepared
    return {
        TRANSACTION_CHECK_TIMES: str(min((half.checks or 0) + 1, max_checks - 1)),
        TRAN_PREPARED_QUEUE_OFFSET: str(first),
        WAIT: "false",
    }


def commit_message(
    record: Record, target: TopicConfig, delays: DelayRouter, now_ms: int
) -> EncodedBatch:
    """Return the message to append for a commit; a delayed message is scheduled first.

    It keeps all properties of the half message, as in RocketMQ. Raises TransactionError.
    """
    properties = decode_properties(record.properties)
    queue_id = _queue_of(properties, target)
    to = _destination(properties, target.name, queue_id, delays, now_ms)
    if to is None:
        block = record.properties
        if CRC32 in properties:
            block = change_properties(block, {}, without=(CRC32,))
        to = Destination(target.name, queue_id, {})
    else:
        removed = (TRAN_MSG, REAL_TOPIC, REAL_QID, CRC32)
        block = change_properties(record.properties, to.properties, without=removed)
    data = encode_record(
        topic=to.topic,
        queue_id=to.queue_id,
        body=record.body,
        properties=block,
        born_timestamp=record.born_timestamp,
        flag=record.flag,
        sys_flag=record.sys_flag & ~SYS_TRANSACTION_MASK | SYS_COMMIT,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.physical_offset,
    )
    words, tags = properties.get(KEYS, "").split(" "), properties.get(TAGS, "")
    keys = keys_of_message(to.topic, properties.get(UNIQ_KEY, ""), words)
    committed = to.schedule(batch_of_records(to.topic, to.queue_id, [data], tags, keys))
    return replace(committed, born_v6=len(record.born_host[0]) == V6_BYTES)


def record_of(reader: Reader, half: HalfMessage) -> Record:
    """Return the record of a half message. Raises StoreDamagedError."""
    at = half.queue_offset
    records = next(reader.records(HALF_TOPIC, 0, at, at + 1)).records
    data = records.buffer.slice(int(records.starts[0]), half.size).to_pybytes()
    return decode_record(data, sealed=reader.log.sealed())


def _destination(
    properties: Mapping[str, str], topic: str, queue_id: int, delays: DelayRouter, now_ms: int
) -> Destination | None:
    """Return the delay queue of a committed message; None if it is visible at once."""
    if not wants_delay(properties):
        return None
    to = delays.destination(_delayed(properties, topic, now_ms), topic, queue_id, now_ms)
    return None if to.delay_ms is None and to.due_ms is None else to


def _delayed(properties: Mapping[str, str], topic: str, now_ms: int) -> Message:
    """Return a message with the delay given in the properties; a level takes precedence."""
    level = parse_java_long(properties.get(DELAY)) or 0
    if level > 0:
        return Message(topic=topic, body=b"", delay_level=level)
    return Message(topic=topic, body=b"", deliver_at_ms=_due(properties, now_ms))


def _due(properties: Mapping[str, str], now_ms: int) -> int:
    for name, unit in ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1)):
        if name in properties:
            return now_ms + max(parse_java_long(properties[name]) or 0, 0) * unit
    return parse_java_long(properties.get(TIMER_DELIVER_MS)) or 0


def _queue_of(properties: Mapping[str, str], target: TopicConfig) -> int:
    wanted = parse_java_long(properties.get(REAL_QID, ""))
    if wanted is None or wanted < 0:
        raise TransactionError(
            "the half message does not contain its destination queue.",
            remedy="Roll it back.",
            code="TRANSACTION_TOPIC_GONE",
        )
    # If the topic has fewer queues now, consumers would not read a removed queue.
    exists = wanted < max(target.read_queues, target.write_queues)
    return wanted if exists else wanted % target.write_queues


def _copies(
    piece: RecordSlice, rows: npt.NDArray[np.int64], topic: str, changes: Changes
) -> EncodedBatch:
    return copy_records(piece.records, rows, topic, np.zeros(len(rows), np.int32), changes)


def _change(block: bytes, changes: Mapping[str, str]) -> bytes:
    """Return the block with the changes, or the block itself if they do not fit."""
    changed = change_properties(block, changes, without=(CRC32,)) if changes else block
    return changed if len(changed) <= MAX_PROPERTIES_BYTES else block


def _rows(
    reader: Reader, half_offsets: Collection[int]
) -> Iterator[tuple[RecordSlice, npt.NDArray[np.int64]]]:
    """Yield slices of the half queue, and which of their rows are at these offsets."""
    wanted = np.array(sorted(half_offsets), np.int64)
    for start, end in _spans(wanted.tolist()):
        for piece in read_undamaged(reader, HALF_TOPIC, 0, start, end):
            first = piece.first_offset
            rows = wanted[(wanted >= first) & (wanted < first + len(piece.records))] - first
            if len(rows):
                yield piece, rows


def _spans(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges [start, end) that cover ascending offsets, without large gaps."""
    first = 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] - offsets[at - 1] > _GAP:
            yield offsets[first], offsets[at - 1] + 1
            first = at
