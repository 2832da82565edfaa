"""Copies messages to the retry and dead-letter topics of a group, in RocketMQ's format.

A copy has the number of deliveries as reconsumeTimes. RETRY_TOPIC is the topic that the message was
sent to; ORIGIN_MESSAGE_ID is the id of its first record. A dead letter also has DLQ_ORIGIN_TOPIC
and DLQ_ORIGIN_MESSAGE_ID; the latter is the message id that consumers see.
Source: `AbstractSendMessageProcessor.consumerSendMsgBack`, `CommitLog.asyncPutMessage`.
"""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyrocket.engine.delayed_routing import Destination
from pyrocket.errors import MessageError
from pyrocket.formats.half_message import change_properties
from pyrocket.formats.message_keys import keys_of_message, offset_message_id
from pyrocket.formats.properties import (
    CRC32,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    MAX_PROPERTIES_BYTES,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_CONTEXT,
    UNIQ_KEY,
    WAIT,
    decode_properties,
)
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_batch import EncodedBatch, batch_of_records
from pyrocket.formats.record_decode import Record
from pyrocket.formats.system_topics import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dead_letter_topic,
    retry_topic,
)
from pyrocket.services.consumption import Consumption
from pyrocket.values.admin import GroupConfig

_log = logging.getLogger(__name__)
_V6_BYTES = 16
_OLD_DELAYS = (TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_OUT_MS, CRC32)
_OPTIONAL = (ORIGIN_MESSAGE_ID, TRACE_CONTEXT)
"""Properties that a copy omits, in this order, if its properties would be too long."""


def origin_of(record: Record, properties: Mapping[str, str], group: str) -> str:
    """Return the original topic of a message, which may be in a retry topic."""
    name = retry_topic(group)
    if record.topic == name:
        return properties.get(RETRY_TOPIC) or name
    is_own = record.topic.startswith((f"{name}_", f"{name}+"))
    return record.topic[len(name) + 1 :] if is_own else record.topic


def retry_copy(
    storage: Consumption,
    record: Record,
    config: GroupConfig,
    *,
    attempts: int,
    delay_ms: int,
    due_ms: int | None = None,
) -> EncodedBatch | None:
    """Return a copy for the retry topic, with the first delay level of at least `delay_ms`.

    attempts: The number of deliveries.
    due_ms: The due time in epoch ms of a copy whose delay is not that of a level.

    Returns None, which is logged, if the copy would be too long.
    """
    to = _place_of_retry(config, delay_ms, storage.delay_levels_ms, due_ms)
    try:
        copy = _copy(record, config.name, to, attempts)
        storage.check_fits(copy)
    except MessageError as error:
        _log.warning(
            "message %d of queue %d of %s cannot be retried and becomes a dead letter: %s",
            *(record.queue_offset, record.queue_id, record.topic, error),
        )
        return None
    return copy


def _place_of_retry(
    config: GroupConfig, delay_ms: int, levels: Sequence[int], due_ms: int | None
) -> Destination:
    topic, queue_id = retry_topic(config.name), random.randrange(max(config.retry_queues, 1))
    if delay_ms <= 0:
        return Destination(topic, queue_id, {DELAY: "0"})
    level = next((n for n, ms in enumerate(levels, 1) if ms >= delay_ms), len(levels))
    home = {REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    if due_ms is not None and levels[level - 1] != delay_ms:
        return Destination(TIMER_TOPIC, 0, {TIMER_OUT_MS: str(due_ms), **home}, due_ms=due_ms)
    own = {DELAY: str(level), **home}
    return Destination(SCHEDULE_TOPIC, level - 1, own, delay_ms=levels[level - 1])


def dead_letter(record: Record, group: str, *, attempts: int) -> EncodedBatch:
    """Return a copy for the dead-letter topic.

    If the copy's properties would be too long, it has only the properties of the message.
    """
    properties = decode_properties(record.properties)
    own = {
        DELAY: "0",
        DLQ_ORIGIN_TOPIC: origin_of(record, properties, group),
        DLQ_ORIGIN_MESSAGE_ID: properties.get(UNIQ_KEY) or _offset_id(record),
    }
    to = Destination(dead_letter_topic(group), 0, own)
    try:
        return _copy(record, group, to, attempts)
    except MessageError:
        # At most the last separator is cut off, which is optional.
        own_only = change_properties(record.properties, {}, _OLD_DELAYS)[:MAX_PROPERTIES_BYTES]
        return _copy_with(own_only, record, to, attempts)


def _changed(properties: bytes, changes: Mapping[str, str]) -> bytes:
    """Return the properties of a copy, without optional ones if they would be too long."""
    for count in range(len(_OPTIONAL) + 1):
        without = _OPTIONAL[:count]
        kept = {name: value for name, value in changes.items() if name not in without}
        block = change_properties(properties, kept, (*_OLD_DELAYS, *without))
        if len(block) <= MAX_PROPERTIES_BYTES:
            return block
    raise MessageError(
        f"the properties have {len(block)} bytes; the maximum is {MAX_PROPERTIES_BYTES}.",
        remedy="Send fewer or shorter properties.",
        code="PROPERTIES_SIZE_EXCEEDED",
    )


def _copy(record: Record, group: str, to: Destination, attempts: int) -> EncodedBatch:
    known = decode_properties(record.properties)
    changes = {
        RETRY_TOPIC: origin_of(record, known, group),
        ORIGIN_MESSAGE_ID: known.get(ORIGIN_MESSAGE_ID) or _offset_id(record),
        WAIT: "false",
        **to.properties,
    }
    return _copy_with(_changed(record.properties, changes), record, to, attempts)


def _copy_with(properties: bytes, record: Record, to: Destination, attempts: int) -> EncodedBatch:
    data = encode_record(
        topic=to.topic,
        queue_id=to.queue_id,
        body=record.body,
        properties=properties,
        born_timestamp=record.born_timestamp,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=attempts,
    )
    known = decode_properties(properties)
    keys = keys_of_message(to.topic, known.get(UNIQ_KEY, ""), known.get(KEYS, "").split(" "))
    copied = to.schedule(batch_of_records(to.topic, to.queue_id, [data], known.get(TAGS, ""), keys))
    return replace(copied, born_v6=len(record.born_host[0]) == _V6_BYTES)


def _offset_id(record: Record) -> str:
    return offset_message_id(*record.store_host, record.physical_offset)
