"""The files of the key index: index files, and the file of keys that are not in them yet.

An index file is a hash table from keys to messages in the log:

    offset      size  field
    0           8     beginTimestamp   store time of the first item, ms
    8           8     endTimestamp     store time of the last item, ms
    16          8     beginPhyOffset   log offset of the first item
    24          8     endPhyOffset     log offset of the last item
    32          4     hashSlotCount    number of non-empty slots
    36          4     indexCount       number of the next item, from 1; 0 is possible in a new file
    40          4·S   slots            number of the newest item of a slot, 0 in an empty slot
    40+4S       20·N  items            item 0 is never used, so N - 1 items fit

    item 0      4     keyHash          abs(String.hashCode(topic#key)), 0 if that is negative
    item 4      8     phyOffset        log offset of the message
    item 12     4     timeDiff         seconds from beginTimestamp to its store time, rounded down
    item 16     4     prevIndex        the previous item in the chain of its slot, 0 at the end

An item belongs to slot keyHash % S. S and N are configured, but not stored in the file. All files
have their full length. The name of a file is the local time of its creation,
yyyyMMddHHmmssSSS.
Source: `IndexHeader`, `IndexFile`, `IndexService`, `UtilAll.timeMillisToHumanString`.

The file `pyrocket/keys` has the keys of appended messages that are not in an index file yet:

    0          8     start   log offset: the file has all keys of [start, end)
    8          8     end     log offset
    16         8     total   number of valid entries
    24         8     check   CRC-32 of the preceding 24 bytes
    32         24·n  entries, in the order of index items: log offset, store time (ms), keyHash

All its numbers have 8 bytes and are little-endian.
"""

import struct
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.checksum import crc32
from pyrocket.formats.hashes import java_hash, java_hash_column

HEADER_BYTES, SLOT_BYTES, ITEM_BYTES = 40, 4, 20

HEADER = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_offset", ">i8"),
        ("end_offset", ">i8"),
        ("slot_count", ">i4"),
        ("count", ">i4"),
    ]
)
SLOT = np.dtype(">i4")
ITEM = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
ITEM_FIELDS = struct.Struct(">iqii")
"""The fields of `ITEM`, for reading items one by one."""

assert HEADER.itemsize == HEADER_BYTES
assert SLOT.itemsize == SLOT_BYTES
assert ITEM.itemsize == ITEM_FIELDS.size == ITEM_BYTES

_INT_MAX = 2**31 - 1
_NAME_DIGITS = 17
_LAST_MS = 253_402_128_000_000
"""30 December 9999 in every time zone: a name has four digits for the year."""


@dataclass(frozen=True)
class Geometry:
    """RocketMQ's maxHashSlotNum and maxIndexNum."""

    slots: int
    items: int

    @property
    def file_bytes(self) -> int:
        return self.item_position(self.items)

    def slot_position(self, slot: int) -> int:
        return HEADER_BYTES + SLOT_BYTES * slot

    def item_position(self, item: int) -> int:
        return HEADER_BYTES + SLOT_BYTES * self.slots + ITEM_BYTES * item

    @staticmethod
    def guess(file_bytes: int) -> "Geometry | None":
        """Return the geometry for this file length and RocketMQ's four items per slot, or None."""
        slots, rest = divmod(file_bytes - HEADER_BYTES, SLOT_BYTES + 4 * ITEM_BYTES)
        return None if rest or slots < 1 else Geometry(slots, 4 * slots)


@dataclass(frozen=True)
class IndexHeader:
    """The header of a file. Times are epoch ms; `count` is the number of the next item."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slot_count: int = 0
    count: int = 0

    def encode(self) -> bytes:
        return np.array(tuple(vars(self).values()), HEADER).tobytes()

    @staticmethod
    def decode(data: bytes) -> "IndexHeader":
        """Decode the header at the start of `data`; a count of 0 becomes 1, as in RocketMQ."""
        header = IndexHeader(*np.frombuffer(data, HEADER, 1)[0].tolist())
        return header if header.count else replace(header, count=1)


def key_hash(topic: str, key: str) -> int:
    value = abs(java_hash(f"{topic}#{key}"))
    return value if value <= _INT_MAX else 0


def key_hashes(
    topics: pa.StringArray | pa.StringScalar, keys: pa.StringArray
) -> npt.NDArray[np.int32]:
    """Return the keyHash of each key; `topics` is one topic, or a topic per key. No nulls."""
    if isinstance(topics, pa.StringScalar):
        return _absolute(java_hash_column(keys, java_hash(f"{topics.as_py()}#")))
    return _absolute(java_hash_column(pc.binary_join_element_wise(topics, keys, "#")))


def _absolute(hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    # The minimum integer has no absolute value and stays negative, in numpy as in Java.
    return np.maximum(np.abs(hashes), 0)


def seconds_after(begin_timestamp: int, times: Ints) -> npt.NDArray[np.int64]:
    """Return the timeDiff of items stored at `times` (epoch ms)."""
    if begin_timestamp <= 0:
        return np.zeros(len(times), np.int64)
    return np.clip((times - begin_timestamp) // 1000, 0, _INT_MAX)


def build_items(hashes: Ints, offsets: Ints, seconds: Ints, previous: Ints) -> npt.NDArray[np.void]:
    """Return items for writing, with the shape of the arguments."""
    items = np.empty(len(hashes), ITEM)
    items["key_hash"], items["physical_offset"] = hashes, offsets
    items["seconds"], items["previous"] = seconds, previous
    return items


def table_name(created_ms: int) -> str:
    """Return the name of a file created at that time (epoch ms)."""
    seconds, milliseconds = divmod(min(max(created_ms, 0), _LAST_MS), 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{milliseconds:03d}"


def is_table_name(name: str) -> bool:
    """Whether a file with this name is an index file."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def name_after(name: str) -> str:
    """Return the next possible name, for a second file created in the same millisecond."""
    return f"{int(name) + 1:0{_NAME_DIGITS}d}"


PENDING_HEADER_BYTES, PENDING_KEY_BYTES = 32, 24

_BOUNDS, _PENDING_HEADER = struct.Struct("<3q"), struct.Struct("<4q")


class PendingHeader(NamedTuple):
    """The range of the log whose keys are pending, and the number of these keys."""

    start: int
    end: int
    total: int

    def encode(self) -> bytes:
        """Encode the header with its checksum."""
        bounds = _BOUNDS.pack(*self)
        return bounds + crc32(bounds).to_bytes(8, "little")

    @staticmethod
    def decode(data: bytes) -> "PendingHeader | None":
        """Return the header; None if it is missing or torn."""
        if len(data) != PENDING_HEADER_BYTES:
            return None
        start, end, total, check = _PENDING_HEADER.unpack(data)
        if check != crc32(data[:24]) or not 0 <= start <= end or total < 0:
            return None
        return PendingHeader(start, end, total)


def pending_key_position(number: int) -> int:
    """Return the position in the file of entry `number`, counted from 0."""
    return PENDING_HEADER_BYTES + PENDING_KEY_BYTES * number


def encode_pending_keys(offsets: Ints, time_ms: int | Ints, hashes: Ints) -> bytes:
    """Encode entries for keys; `time_ms` are the store times, or the store time of all messages."""
    entries = np.empty((len(hashes), 3), "<i8")
    entries[:, 0], entries[:, 1], entries[:, 2] = offsets, time_ms, hashes
    return entries.tobytes()


def decode_pending_keys(data: bytes) -> npt.NDArray[np.int64]:
    """Return an array with one row per entry: log offset, store time, keyHash."""
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False).reshape(-1, 3)
