"""One CommitLog record.

    offset  size  field                       for IPv4 hosts; an IPv6 host takes 20 bytes, not 8
    0       4     totalSize                   including this field
    4       4     magic                       v1 0xDAA320A7, v2 0xDAA320AB
    8       4     bodyCRC                     crc32 of the body as stored, top bit cleared
    12      4     queueId
    16      4     flag                        the application's
    20      8     queueOffset                 position in (topic, queueId)
    28      8     physicalOffset              position in the log of byte 0 of this record
    36      4     sysFlag                     see SYS_*
    40      8     bornTimestamp               ms, the sender's
    48      8     bornHost                    address, i32 port
    56      8     storeTimestamp              ms
    64      8     storeHost                   address, i32 port
    72      4     reconsumeTimes
    76      8     preparedTransactionOffset
    84      4+n   body                        i32 length, bytes
    88+n    1+t   topic                       v1: u8 length (signed in Java: at most 127); v2: i16
    89+n+t  2+p   properties                  i16 length, see `properties`

A file ends with a blank record: i32 remaining bytes of the file, i32 magic 0xCBD43194, padding.
Source: `CommitLog.checkMessageAndReturnSize`, `MessageDecoder.decode`.
"""

import struct
from dataclasses import dataclass

import numpy as np

from pyrocket.formats.checksum import crc32

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194

SYS_COMPRESSED = 0x1
SYS_TRANSACTION_MASK = 0xC
SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC
SYS_BORN_HOST_V6 = 0x10
SYS_STORE_HOST_V6 = 0x20
SYS_COMPRESSION_MASK = 0x700
SYS_LZ4 = 0x100
SYS_ZSTD = 0x200
SYS_ZLIB = 0x300
SYS_DAMAGED = 0x40000000
"""On disk: never change. Compression type 0 is zlib as well (clients before 4.9.4). SYS_DAMAGED is
not RocketMQ's: see `placeholder`."""

HEADER_BYTES = 88
"""Bytes before the body of a record with IPv4 hosts."""

FIXED_BYTES = 91
"""totalSize less body, topic and properties (v1, IPv4 hosts)."""

BLANK_BYTES = 8
"""Bytes always left after a record, so that a blank record fits."""

V6_BYTES = 16
HOST_V6_EXTRA = 12
MAX_TOPIC_BYTES = 127

Host = tuple[bytes, int]
"""A packed address and a port."""

STORE_HOST: Host = (bytes((127, 0, 0, 1)), 10911)
"""Both hosts of a record that is written without a server."""

PREFIX = struct.Struct(">iIIiiqqiq")
HOST_V4, HOST_V6 = struct.Struct(">4si"), struct.Struct(">16si")
SUFFIX = struct.Struct(">iqi")
_HEAD = struct.Struct(">iI")
LONG = struct.Struct(">q")
SHORT = struct.Struct(">h")

assert PREFIX.size + 2 * HOST_V4.size + LONG.size + SUFFIX.size == HEADER_BYTES


@dataclass(frozen=True)
class RecordHeader:
    """The first two fields of a record, which are enough to walk the log."""

    size: int
    magic: int

    @property
    def is_message(self) -> bool:
        """Whether a message (v1 or v2) starts here."""
        return self.magic in (MAGIC_V1, MAGIC_V2) and self.size >= FIXED_BYTES

    @property
    def is_blank(self) -> bool:
        """Whether the rest of the file is padding."""
        return self.magic == BLANK_MAGIC


def read_header(data: bytes | memoryview, position: int = 0) -> RecordHeader:
    """Return the header at `position`, which may be invalid."""
    return RecordHeader(*_HEAD.unpack_from(data, position))


def read_store_timestamp(data: bytes) -> int:
    """Return the store time of the record at the start of `data`; 0 without a record."""
    if len(data) < FIXED_BYTES or not read_header(data).is_message:
        return 0
    sys_flag = int.from_bytes(data[36:40], "big", signed=True)
    position = 56 + (HOST_V6_EXTRA if sys_flag & SYS_BORN_HOST_V6 else 0)
    (timestamp,) = LONG.unpack_from(data, position)
    return int(timestamp)


def encode_blank(left: int) -> bytes:
    """Return the header of a blank record that fills `left` bytes."""
    return _HEAD.pack(left, BLANK_MAGIC)


CRC_MASK = 0x7FFFFFFF
"""bodyCRC is CRC-32 without its top bit."""


def body_crc(body: bytes | memoryview) -> int:
    """Return the checksum of a stored body."""
    return crc32(body) & CRC_MASK


def encode_record(
    *,
    topic: str,
    queue_id: int,
    queue_offset: int = 0,
    physical_offset: int = 0,
    body: bytes,
    properties: bytes,
    born_timestamp: int,
    store_timestamp: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_host: tuple[bytes, int] = STORE_HOST,
    store_host: tuple[bytes, int] = STORE_HOST,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Encode a v1 record of a stored body and encoded properties; sets the flags of IPv6 hosts."""
    name = topic.encode()
    sys_flag |= SYS_BORN_HOST_V6 if len(born_host[0]) == V6_BYTES else 0
    sys_flag |= SYS_STORE_HOST_V6 if len(store_host[0]) == V6_BYTES else 0
    hosts = _host(*born_host), _host(*store_host)
    size = FIXED_BYTES - 16 + sum(map(len, hosts)) + len(body) + len(name) + len(properties)
    return b"".join(
        (
            PREFIX.pack(
                size,
                MAGIC_V1,
                body_crc(body),
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
            ),
            hosts[0],
            LONG.pack(store_timestamp),
            hosts[1],
            SUFFIX.pack(reconsume_times, prepared_transaction_offset, len(body)),
            body,
            len(name).to_bytes(1, "big"),
            name,
            SHORT.pack(len(properties)),
            properties,
        )
    )


def _host(address: bytes, port: int) -> bytes:
    return (HOST_V6 if len(address) == V6_BYTES else HOST_V4).pack(address, port)


def host_text(address: bytes, port: int) -> str:
    """Return `a.b.c.d:port`, or `[v6]:port`."""
    if len(address) == 4:
        return ".".join(map(str, address)) + f":{port}"
    groups = (address[i : i + 2].hex().lstrip("0") or "0" for i in range(0, 16, 2))
    return "[" + ":".join(groups) + f"]:{port}"


HEADER = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "S8"),
        ("store_timestamp", ">i8"),
        ("store_host", "S8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
assert HEADER.itemsize == HEADER_BYTES


def offset_of(field: str) -> int:
    """Return the position of a field in the header."""
    return int(HEADER.fields[field][1]) if HEADER.fields else 0


def follow(view: memoryview, position: int) -> tuple[list[int], int]:
    """Return the start positions of the complete records from `position` on, and the last end.

    Checks only sizes and magic numbers. Records can only be found one after the other, so this is a
    minimal loop over two fields per record.
    """
    starts: list[int] = []
    add, unpack, last = starts.append, _HEAD.unpack_from, len(view) - BLANK_BYTES
    while position <= last:
        size, magic = unpack(view, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED_BYTES:
            break
        add(position)
        position += size
    if position > len(view):  # The last one is incomplete.
        position = starts.pop()
    return starts, position


def find_record(data: bytes | memoryview, base: int) -> int:
    """Return the position of the first record in `data`, or -1. `base` is the log offset of `data`.

    A record is recognized by its magic number and its physical offset.
    """
    positions = [_find(bytes(data), base, magic) for magic in (MAGIC_V1, MAGIC_V2)]
    return min((at for at in positions if at >= 0), default=-1)


def _find(data: bytes, base: int, magic: int) -> int:
    word = magic.to_bytes(4, "big")
    at = data.find(word, 4)
    while at >= 0:
        start = at - 4
        if int.from_bytes(data[start + 28 : start + 36], "big", signed=True) == base + start:
            return start
        at = data.find(word, at + 1)
    return -1
