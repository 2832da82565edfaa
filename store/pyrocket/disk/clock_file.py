"""A clock for tests that all processes of a store share: `pyrocket/clock`.

The file has 8 bytes in native order: the time in epoch milliseconds. The file is mapped. The time
is read and written by one aligned 8-byte access (`memoryview.cast`), so other processes never see a
half-written time. Without the file, as in all stores outside of tests, the wall clock is used.
"""

import logging
import mmap
import os
from pathlib import Path

from pyrocket.base.clock import Clock, system_clock
from pyrocket.disk import io
from pyrocket.errors import StoreDamagedError

CLOCK_BYTES = 8
LOG = logging.getLogger("pyrocket")


class ClockFile:
    """The mapped time, returned by a call. Raises FileNotFoundError, StoreDamagedError."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        with io.opened(path, os.O_RDWR if writable else os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_size != CLOCK_BYTES:
                raise StoreDamagedError(
                    f"{path} is not a clock: it has {os.fstat(descriptor).st_size} bytes instead of"
                    f" {CLOCK_BYTES}.",
                    remedy="Delete it: only tests need this file.",
                    code="CLOCK_DAMAGED",
                )
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._fields = memoryview(mmap.mmap(descriptor, CLOCK_BYTES, access=access)).cast("q")

    def __call__(self) -> int:
        """Return the time in epoch milliseconds."""
        return self._fields[0]

    def set(self, now_ms: int) -> None:
        """Set the time for all processes."""
        self._fields[0] = now_ms


def clock_at(path: Path) -> Clock:
    """Return the clock in the file `path`, or the wall clock if the file is missing."""
    try:
        clock = ClockFile(path)
    except FileNotFoundError:
        return system_clock
    LOG.warning(
        "%s is a clock for tests: this store uses its time, now %d, instead of the wall clock."
        " Delete the file if this is not a test.",
        path,
        clock(),
    )
    return clock
