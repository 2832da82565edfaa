"""The file `pyrocket/keys`: keys of appended messages that are not in the key index yet.

    offset     size  field
    0          8     start   log offset: the file has all keys of [start, end)
    8          8     end     log offset
    16         8     total   number of valid entries
    24         8     check   CRC-32 of the preceding 24 bytes
    32         24·n  entries, in the order of index items: log offset, store time (ms), keyHash

All numbers have 8 bytes and are little-endian.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.checksum import crc32

HEADER_BYTES, PENDING_KEY_BYTES = 32, 24

_BOUNDS, _HEADER = struct.Struct("<3q"), struct.Struct("<4q")


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
        if len(data) != HEADER_BYTES:
            return None
        start, end, total, check = _HEADER.unpack(data)
        if check != crc32(data[:24]) or not 0 <= start <= end or total < 0:
            return None
        return PendingHeader(start, end, total)


def pending_key_position(number: int) -> int:
    """Return the position in the file of entry `number`, counted from 0."""
    return HEADER_BYTES + PENDING_KEY_BYTES * number


def encode_pending_keys(offsets: Ints, time_ms: int, hashes: Ints) -> bytes:
    """Encode entries for keys of messages with the same store time."""
    entries = np.empty((len(hashes), 3), "<i8")
    entries[:, 0], entries[:, 1], entries[:, 2] = offsets, time_ms, hashes
    return entries.tobytes()


def decode_pending_keys(data: bytes) -> npt.NDArray[np.int64]:
    """Return an array with one row per entry: log offset, store time, keyHash."""
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False).reshape(-1, 3)
