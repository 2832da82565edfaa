"""Finds data and holes in sparse files."""

import errno
import os
from pathlib import Path

from pyrocket.disk import io


def data_from(path: Path, offset: int) -> int:
    """Return the position of the first data at or after `offset`; the file's length without data.

    Returns `offset` if the file system does not report holes.
    """
    descriptor = io.open_file(path, os.O_RDONLY)
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return max(offset, os.fstat(descriptor).st_size)
        return offset
    finally:
        os.close(descriptor)


class HoleCache:
    """Finds the next hole in a file; caches it, because the system call is slow on tmpfs.

    Accessing a hole of a full tmpfs through a mapping raises SIGBUS. Cached positions stay valid
    because holes are never punched into files.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def length(self, descriptor: int, offset: int, length: int) -> int:
        """Return the number of bytes from `offset` up to the next hole, at most `length`."""
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        first, last = self._known.get(file, (offset, offset))
        if not first <= offset <= last:
            first = last = offset
        if last < offset + length:
            last = _hole_from(descriptor, last)
            self._known[file] = first, last
        return min(length, last - offset)


def _hole_from(descriptor: int, offset: int) -> int:
    """Return the start of the next hole; the file's length if none is reported."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_HOLE)
    except OSError:
        return max(offset, os.fstat(descriptor).st_size)
