"""ConsumeQueue entries: the location of each message of a queue in the log.

    offset  size  field
    0       8     physicalOffset   position of the record in the log
    8       4     size             bytes of the record; 0 marks the end of the queue
    12      8     tagsCode         String.hashCode(TAGS) sign-extended, 0 without tags

Entry q of a queue is at byte 20·q of its concatenated files. If a queue does not begin at 0,
pre-blank entries (0, 0x7FFFFFFF, 0) fill its first file up to the first entry. Source:
`ConsumeQueue.putMessagePositionInfo`, `fillPreBlank`.
"""

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pyrocket.formats.arrow_buffers import Ints

ENTRY_BYTES = 20

ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
"""One entry as stored."""

_ENTRY = struct.Struct(">qiq")

assert ENTRY.itemsize == _ENTRY.size == ENTRY_BYTES

PRE_BLANK_SIZE = 0x7FFFFFFF
"""The size field of a pre-blank entry. On disk: never change."""

Entries = npt.NDArray[np.void]


def build_entries(physical_offsets: Ints, sizes: Ints, tags_codes: Ints) -> Entries:
    """Return entries for writing, with the shape of the arguments."""
    entries = np.empty(len(physical_offsets), ENTRY)
    entries["physical_offset"] = physical_offsets
    entries["size"] = sizes
    entries["tags_code"] = tags_codes
    return entries


def iter_entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the entries in `data`; for a few entries this is faster than `parse_entries`."""
    return _ENTRY.iter_unpack(data)


def pre_blank(count: int) -> bytes:
    """Return `count` pre-blank entries."""
    entries = np.zeros(count, ENTRY)
    entries["size"] = PRE_BLANK_SIZE
    return entries.tobytes()


def parse_entries(data: bytes) -> Entries:
    """Return the complete entries in `data`, without a copy."""
    return np.frombuffer(data, ENTRY, count=len(data) // ENTRY_BYTES)
