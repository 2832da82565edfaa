"""Following records: each says how long it is, so the next begins where it ends."""

import struct

from pyrocket.formats.record import BLANK_BYTES, FIXED_BYTES, MAGIC_V1, MAGIC_V2

_HEAD = struct.Struct(">iI")


def follow(view: memoryview, position: int) -> tuple[list[int], int]:
    """Return where the whole records begin that follow each other from `position` on, and end.

    Only sizes and magic numbers are looked at. A plain loop over two words a record: nothing else
    of the log can be found without it, so it does nothing else.
    """
    starts: list[int] = []
    add, unpack, last = starts.append, _HEAD.unpack_from, len(view) - BLANK_BYTES
    while position <= last:
        size, magic = unpack(view, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED_BYTES:
            break
        add(position)
        position += size
    if position > len(view):  # The last one is not all there.
        position = starts.pop()
    return starts, position


def find_record(data: bytes | memoryview, base: int) -> int:
    """Return the position of the first record in `data`, whose byte 0 is log byte `base`; else -1.

    A record is known by its magic number and by its own place in the log, which it names.
    """
    found = [_find(bytes(data), base, magic) for magic in (MAGIC_V1, MAGIC_V2)]
    return min((at for at in found if at >= 0), default=-1)


def _find(data: bytes, base: int, magic: int) -> int:
    word = magic.to_bytes(4, "big")
    at = data.find(word, 4)
    while at >= 0:
        start = at - 4
        if int.from_bytes(data[start + 28 : start + 36], "big", signed=True) == base + start:
            return start
        at = data.find(word, at + 1)
    return -1
