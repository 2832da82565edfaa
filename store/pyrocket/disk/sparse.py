"""Files with holes: finding what has been written."""

import errno
import os
from pathlib import Path

from pyrocket.disk import io


def data_from(path: Path, offset: int) -> int:
    """Return where the next written part of the file begins; its length if there is none.

    `offset` itself where the system cannot tell.
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
    """Remembers of files how far they have no hole: on a tmpfs it takes long to look again.

    There, once it is full, a hole that is touched through a map is SIGBUS. What is written stays:
    files are not emptied in place.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def length(self, descriptor: int, offset: int, length: int) -> int:
        """Return how many bytes from `offset` on lie before the next hole, `length` at most."""
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
    """Return where the next hole begins; the file's length where there is or can be told none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_HOLE)
    except OSError:
        return max(offset, os.fstat(descriptor).st_size)
