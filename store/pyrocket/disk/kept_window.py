"""The part of a file that was mapped last, kept for the next window in it.

A scan looks at one window after the other. Windows that begin where a huge page does are mapped
2 MiB at a time by file systems that cache files in huge pages (ext4 and xfs on Linux), and a window
that is there already needs no page faults at all: a task that reads several queues finds their
messages in the same part of the log.
"""

import errno
import mmap
import os

import pyarrow as pa

HUGE_PAGE_BYTES = 2 * 1024 * 1024
KEPT_BYTES = 32 * 1024 * 1024
"""Mapped at once, where the file is so long: address space, which Spark may limit."""

File = tuple[int, int]
"""Device and inode. No other file can have the inode while a mapping of this one is kept."""


class KeptWindow:
    """One mapping of one file. Not safe to share between threads."""

    def __init__(self) -> None:
        self._file: File | None = None
        self._first = 0
        self._mapped = pa.py_buffer(b"")

    def get(self, descriptor: int, file: File, first: int, length: int) -> pa.Buffer:
        """Return `length` bytes of the open file from byte `first` on, mapped for reading.

        They stay valid as long as the buffer lives. Raises ValueError if the file is shorter.
        """
        size = os.fstat(descriptor).st_size
        if first + length > size:
            raise ValueError(f"the file has {size} bytes, not {first + length}")
        if not self._covers(file, first, first + length):
            # Before the next is mapped: address space may be limited.
            self.drop()
            self._mapped, self._first = _map(descriptor, first, first + length, size)
            self._file = file
        return self._mapped.slice(first - self._first, length)

    def drop(self) -> None:
        """Let the mapping go; buffers that were returned stay valid."""
        self._file, self._mapped = None, pa.py_buffer(b"")

    def _covers(self, file: File, first: int, end: int) -> bool:
        return (
            file == self._file and self._first <= first and end <= self._first + len(self._mapped)
        )


def _map(descriptor: int, first: int, end: int, size: int) -> tuple[pa.Buffer, int]:
    """Map [first, end) and what lies around it; return that and the byte where it begins."""
    aligned = first - first % HUGE_PAGE_BYTES
    if end <= aligned + KEPT_BYTES:
        try:
            return _map_range(descriptor, aligned, min(aligned + KEPT_BYTES, size))
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            # The bytes alone may still fit.
    return _map_range(descriptor, first - first % mmap.ALLOCATIONGRANULARITY, end)


def _map_range(descriptor: int, first: int, end: int) -> tuple[pa.Buffer, int]:
    mapped = mmap.mmap(descriptor, end - first, access=mmap.ACCESS_READ, offset=first)
    return pa.py_buffer(mapped), first
