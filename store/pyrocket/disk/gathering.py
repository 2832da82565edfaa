"""Short pieces that lie far from each other in a run of files, read together.

A mapping would have the system read around each of them, and find out page by page.
"""

import os
from itertools import groupby

from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name

Piece = tuple[int, int]
"""An offset and a length; no piece straddles two files."""


def gather(run: FileQueue, pieces: list[Piece]) -> bytes:
    """Return the pieces, which ascend, behind one another; fewer bytes where a file is short.

    The system is told of all pieces of a file first, so that a disk reads many at a time. Raises
    FileNotFoundError.
    """
    found: list[bytes] = []
    for start, some in groupby(pieces, lambda piece: run.start_of(piece[0])):
        found += _of_one_file(run, start, list(some))
    return b"".join(found)


def _of_one_file(run: FileQueue, start: int, pieces: list[Piece]) -> list[bytes]:
    descriptor = io.open_file(run.folder / file_name(start), os.O_RDONLY)
    try:
        for offset, length in pieces if hasattr(os, "posix_fadvise") else ():
            os.posix_fadvise(descriptor, offset - start, length, os.POSIX_FADV_WILLNEED)
        return [os.pread(descriptor, length, offset - start) for offset, length in pieces]
    finally:
        os.close(descriptor)
