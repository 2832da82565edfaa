"""Whether a file of the log was cut, told by its last bytes alone.

A record never straddles files, and a blank record says how far its file goes: what begins in a
file and would end behind it was cut off.
"""

import os
from pathlib import Path

from pyrocket.config import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES
from pyrocket.disk import io
from pyrocket.formats.record import (
    BLANK_BYTES,
    HEADER_BYTES,
    MAX_TOPIC_BYTES,
    find_record,
    follow,
    read_header,
)

_GLANCE_BYTES = 4096
_LONGEST = HEADER_BYTES + MAX_BODY_BYTES + MAX_PROPERTIES_BYTES + MAX_TOPIC_BYTES
_TAIL_BYTES = 2 * _LONGEST
"""At least one record begins and ends in so many bytes, or the file was cut in its first."""


def is_cut(path: Path, start: int) -> bool:
    """Whether a file of the log, which begins at log offset `start`, has lost its end.

    A file that ends in zeros is taken to be whole: nothing was lost. Reads 4 KiB of most files.
    """
    with os.fdopen(io.open_file(path, os.O_RDONLY), "rb") as file:
        length = file.seek(0, 2)
        file.seek(max(0, length - _GLANCE_BYTES))
        if not file.read().strip(b"\0"):
            return False
        base = max(0, length - _TAIL_BYTES)
        file.seek(base)
        tail = memoryview(file.read())
    at = 0 if base == 0 else find_record(tail, start + base)
    if at < 0:
        return False
    at = follow(tail, at)[1]
    if at + BLANK_BYTES > len(tail):
        return True
    header = read_header(tail, at)
    return (header.is_message or header.is_blank) and at + header.size > len(tail)
