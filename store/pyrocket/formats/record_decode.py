"""Decodes one CommitLog record; see the table in `record`."""

import logging
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pyrocket.errors import PLACEHOLDER, RESTORE_DAMAGED, RecordDamagedError, StoreDamagedError
from pyrocket.formats.compression import inflate
from pyrocket.formats.message_keys import offset_message_id
from pyrocket.formats.properties import UNIQ_KEY, decode_properties
from pyrocket.formats.record import (
    HOST_V4,
    HOST_V6,
    LONG,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX,
    SHORT,
    STORE_HOST,
    SUFFIX,
    SYS_BORN_HOST_V6,
    SYS_DAMAGED,
    SYS_STORE_HOST_V6,
    body_crc,
    host_text,
)
from pyrocket.formats.record_crc import crc_holds, crc_is_right, has_room
from pyrocket.formats.record_fields import NOT_SEALED, SealedRanges
from pyrocket.values.message import StoredMessage

_BYTE = struct.Struct(">B")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Record:
    """A decoded record, with body and properties as stored."""

    size: int
    magic: int
    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    store_timestamp: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes

    def to_message(self, longest: int | None = None) -> StoredMessage:
        """Return the message for consumers, with inflated body, parsed properties and its id.

        Raises RecordDamagedError for a placeholder of a damaged message, and LongBodyError if the
        body inflates to more than `longest` bytes.
        """
        if self.sys_flag & SYS_DAMAGED:
            raise RecordDamagedError(f"corrupt record: {PLACEHOLDER}.", remedy=RESTORE_DAMAGED)
        properties = decode_properties(self.properties)
        offset_id = offset_message_id(*self.store_host, self.physical_offset)
        return StoredMessage(
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=self.queue_offset,
            physical_offset=self.physical_offset,
            store_size=self.size,
            body=inflate(self.body, self.sys_flag, longest),
            properties=properties,
            born_timestamp=self.born_timestamp,
            store_timestamp=self.store_timestamp,
            born_host=host_text(*self.born_host),
            store_host=host_text(*self.store_host),
            flag=self.flag,
            sys_flag=self.sys_flag,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            msg_id=properties.get(UNIQ_KEY, offset_id),
        )


def messages_of(records: Iterable[bytes]) -> list[StoredMessage]:
    """Return records as messages; a corrupt record is logged and left out."""
    return [message for data in records if (message := _message_or_none(data)) is not None]


def _message_or_none(data: bytes) -> StoredMessage | None:
    try:
        return decode_record(data).to_message()
    except StoreDamagedError as error:
        _log.error("a message is damaged and is not consumed: %s", error)
        return None


def decode_record(
    data: bytes | memoryview, *, verify_crc: bool = True, sealed: SealedRanges = NOT_SEALED
) -> Record:
    """Decode the record at the start of `data`, which may be longer.

    Raises StoreDamagedError if it is not a complete, consistent v1 or v2 record.
    """
    try:
        record, end = _decode(bytes(data))
    except struct.error as error:
        raise StoreDamagedError(
            f"incomplete record: it ends after {len(data)} bytes, before the end of its fields."
        ) from error
    except UnicodeDecodeError as error:
        raise StoreDamagedError("invalid record: its topic is not UTF-8.") from error
    except IndexError as error:
        raise StoreDamagedError(f"incomplete record: {error}.") from error
    if record.magic not in (MAGIC_V1, MAGIC_V2):
        raise StoreDamagedError(f"not a record: magic 0x{record.magic:08X}.")
    if end != record.size or record.size > len(data):
        raise StoreDamagedError(f"record of {record.size} bytes whose fields take {end}.")
    if verify_crc and body_crc(record.body) != record.crc:
        raise StoreDamagedError("checksum mismatch of the body.")
    if verify_crc and not _holds(record, data[:end], sealed):
        raise StoreDamagedError("checksum mismatch of the whole record.")
    return record


def _holds(record: Record, data: bytes | memoryview, sealed: SealedRanges) -> bool:
    """Whether a record matches its own checksum: see `record_crc.check_crcs`."""
    length = len(record.properties)
    if sealed.cover(np.array([record.physical_offset])).all():
        if crc_is_right(data, length):
            return True
        if has_room(np.array([len(data)]), np.array([length]), sealed.file_bytes).all():
            return False
    return record.store_host != STORE_HOST or crc_holds(data, length)


def _decode(data: bytes) -> tuple[Record, int]:
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born = PREFIX.unpack_from(
        data
    )
    position = PREFIX.size
    born_host, position = _read_host(data, position, sys_flag & SYS_BORN_HOST_V6)
    (stored,) = LONG.unpack_from(data, position)
    store_host, position = _read_host(data, position + 8, sys_flag & SYS_STORE_HOST_V6)
    reconsumed, prepared, body_length = SUFFIX.unpack_from(data, position)
    body, position = _read_run(data, position + SUFFIX.size, body_length)
    if magic == MAGIC_V2:
        (topic_length,) = SHORT.unpack_from(data, position)
        topic, position = _read_run(data, position + 2, topic_length)
    else:
        (topic_length,) = _BYTE.unpack_from(data, position)
        topic, position = _read_run(data, position + 1, topic_length)
    (properties_length,) = SHORT.unpack_from(data, position)
    properties, position = _read_run(data, position + 2, properties_length)
    record = Record(
        size=size,
        magic=magic,
        crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=stored,
        store_host=store_host,
        reconsume_times=reconsumed,
        prepared_transaction_offset=prepared,
        body=body,
        topic=topic.decode(),
        properties=properties,
    )
    return record, position


def _read_host(data: bytes, position: int, is_v6: int) -> tuple[tuple[bytes, int], int]:
    layout = HOST_V6 if is_v6 else HOST_V4
    return layout.unpack_from(data, position), position + layout.size


def _read_run(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    if length < 0 or position + length > len(data):
        raise IndexError(f"a field of {length} bytes at {position} of {len(data)}")
    return data[position : position + length], position + length
