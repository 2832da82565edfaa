"""Short ranges that are scattered over the files of a queue of files, read together.

A mapping would make the system read around each of them, one page fault at a time.
"""

import os
from itertools import groupby

from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name

ByteRange = tuple[int, int]
"""An offset and a length, within one file."""


def read_ranges(files: FileQueue, ranges: list[ByteRange]) -> bytes:
    """Return the bytes of the ranges, which ascend, joined; fewer if a file is too short.

    The system learns all ranges of a file first, so that a disk reads many at a time. Raises
    FileNotFoundError.
    """
    found: list[bytes] = []
    for start, some in groupby(ranges, lambda each: files.start_of(each[0])):
        found += _read_file(files, start, list(some))
    return b"".join(found)


def _read_file(files: FileQueue, start: int, ranges: list[ByteRange]) -> list[bytes]:
    descriptor = io.open_file(files.folder / file_name(start), os.O_RDONLY)
    try:
        for offset, length in ranges if hasattr(os, "posix_fadvise") else ():
            os.posix_fadvise(descriptor, offset - start, length, os.POSIX_FADV_WILLNEED)
        return [os.pread(descriptor, length, offset - start) for offset, length in ranges]
    finally:
        os.close(descriptor)
