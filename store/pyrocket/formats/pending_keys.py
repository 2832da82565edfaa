"""The file `pyrocket/keys`: keys of appended messages that are not in the index yet.

    offset     size  field
    0          8     start   log offset from which on all keys are noted
    8          8     end     log offset up to which they are noted
    16         8     total   number of valid notes
    24         8     check   CRC-32 of the 24 bytes before
    32         24·n  notes, in the order of the index's items: log offset, store time (ms), keyHash

8 bytes each, little-endian.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.checksum import crc32

HEADER_BYTES, NOTE_BYTES = 32, 24

_BOUNDS, _HEADER = struct.Struct("<3q"), struct.Struct("<4q")


class NotesHeader(NamedTuple):
    """The range of the log whose keys are noted, and how many notes there are."""

    start: int
    end: int
    total: int

    def encode(self) -> bytes:
        """Return the bytes."""
        bounds = _BOUNDS.pack(*self)
        return bounds + crc32(bounds).to_bytes(8, "little")

    @staticmethod
    def decode(data: bytes) -> "NotesHeader | None":
        """Return the header; None if it is missing or torn."""
        if len(data) != HEADER_BYTES:
            return None
        start, end, total, check = _HEADER.unpack(data)
        if check != crc32(data[:24]) or not 0 <= start <= end or total < 0:
            return None
        return NotesHeader(start, end, total)


def note_position(number: int) -> int:
    """Return the position of a note in the file, counted from 0."""
    return HEADER_BYTES + NOTE_BYTES * number


def encode_notes(offsets: Ints, time_ms: int, hashes: Ints) -> bytes:
    """Return the notes of messages with one store time."""
    notes = np.empty((len(hashes), 3), "<i8")
    notes[:, 0], notes[:, 1], notes[:, 2] = offsets, time_ms, hashes
    return notes.tobytes()


def decode_notes(data: bytes) -> npt.NDArray[np.int64]:
    """Return notes as rows of three: log offset, store time, keyHash."""
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False).reshape(-1, 3)
