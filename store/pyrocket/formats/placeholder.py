"""Placeholders: records that repair writes over damaged bytes, so that the log is readable again.

A placeholder is a valid record of the same length, with topic, queue and queue offset of the lost
message. So all readers, including a RocketMQ broker, continue after it, and queues stay complete.
It is marked by a bit of sysFlag that RocketMQ does not use: our readers raise an error instead of
returning the message. Consumers of a RocketMQ broker receive it as a message, with the property
PYROCKET_DAMAGED if there is room. If the lost message is unknown, the topic is DAMAGED_TOPIC, and
the record is marked as rolled back, so that it gets no queue entry.

    offset  size  field
    0       88    header
    88      n     body: the damaged bytes, unchanged
            …     topic, properties
"""

from dataclasses import dataclass

import numpy as np

from pyrocket.formats.properties import encode_properties
from pyrocket.formats.record import (
    FIXED_BYTES,
    HEADER_BYTES,
    SYS_DAMAGED,
    SYS_ROLLBACK,
    encode_record,
)
from pyrocket.formats.record_crc import CRC_BYTES, crc_tails, write_crcs
from pyrocket.formats.system_topics import DAMAGED_TOPIC

_MARK = encode_properties({"PYROCKET_DAMAGED": "true"})
_CRC_ROOM = crc_tails(np.zeros(1, np.int64)).tobytes()


@dataclass(frozen=True)
class LostMessage:
    """The topic, queue and offset of a lost message."""

    topic: str
    queue_id: int
    queue_offset: int


def min_bytes(lost: LostMessage | None) -> int:
    """Return the minimum length of a placeholder; `lost` is None if the message is unknown."""
    return FIXED_BYTES + len((lost.topic if lost else DAMAGED_TOPIC).encode())


def encode_placeholder(
    damaged: bytes, offset: int, lost: LostMessage | None, store_timestamp: int
) -> bytes:
    """Return the placeholder for `damaged` bytes (at least `min_bytes`) at a log offset."""
    room = len(damaged) - min_bytes(lost)
    properties = next(known for known in (_MARK + _CRC_ROOM, _CRC_ROOM, b"") if len(known) <= room)
    place = lost or LostMessage(DAMAGED_TOPIC, 0, 0)
    record = bytearray(
        encode_record(
            topic=place.topic,
            queue_id=place.queue_id,
            queue_offset=place.queue_offset,
            physical_offset=offset,
            body=damaged[HEADER_BYTES : HEADER_BYTES + room - len(properties)],
            properties=properties,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
            sys_flag=SYS_DAMAGED if lost else SYS_DAMAGED | SYS_ROLLBACK,
        )
    )
    if len(properties) >= CRC_BYTES:
        write_crcs(np.frombuffer(record, np.uint8), np.array([0, len(record)]))
    return bytes(record)
