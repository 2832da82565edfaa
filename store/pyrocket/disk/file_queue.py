"""Fixed-size files that form one sequence of bytes: the CommitLog, or one ConsumeQueue.

RocketMQ's MappedFileQueue. Each file is a segment whose name is its start offset. All segments have
the same length and are sparse. Reads never change files; writes create segments as needed. A new
segment is completed in a scratch folder and renamed into place, so that other processes never open
a short segment.
"""

import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from threading import Lock

import pyarrow as pa

from pyrocket.disk import io
from pyrocket.disk.io import HoleCache, data_from
from pyrocket.disk.os_errors import naming_obstacles
from pyrocket.errors import PyrocketError, StoreDamagedError

HUGE_PAGE_BYTES = 2 * 1024 * 1024
KEPT_BYTES = 32 * 1024 * 1024
"""Maximum bytes mapped at a time. Mapped bytes take address space, which Spark may limit."""

_DIGITS = 20


def file_name(start: int) -> str:
    """Return the name of the file that begins at offset `start`."""
    return f"{start:0{_DIGITS}d}"


def parse_file_name(name: str) -> int | None:
    """Return the start offset in a file name, or None for any other name."""
    return int(name) if len(name) == _DIGITS and name.isascii() and name.isdigit() else None


File = tuple[int, int]
"""Device and inode. While a file is mapped, no other file gets its inode."""


class MappedWindow:
    """The part of a segment that was mapped last, reused for the next window if possible.

    A scan reads one window after the other. File systems that cache files in huge pages (ext4 and
    xfs on Linux) map 2 MiB at a time if the window begins at a huge page. A window that is already
    mapped causes no page faults: a task that reads several queues often finds their messages in the
    same part of the log. Not safe to share between threads.
    """

    def __init__(self) -> None:
        self._file: File | None = None
        self._first = 0
        self._mapped = pa.py_buffer(b"")

    def get(self, descriptor: int, file: File, first: int, length: int) -> pa.Buffer:
        """Return `length` bytes of an open file, starting at byte `first`, mapped for reading.

        The bytes are valid as long as the buffer lives. Raises ValueError if the file is shorter.
        """
        size = os.fstat(descriptor).st_size
        if first + length > size:
            raise ValueError(f"the file has {size} bytes, not {first + length}")
        if not self._covers(file, first, first + length):
            # Before the next window is mapped: address space may be limited.
            self.drop()
            self._mapped, self._first = _map(descriptor, first, first + length, size)
            self._file = file
        return self._mapped.slice(first - self._first, length)

    def drop(self) -> None:
        """Drop the mapping; buffers that were returned stay valid."""
        self._file, self._mapped = None, pa.py_buffer(b"")

    def _covers(self, file: File, first: int, end: int) -> bool:
        return (
            file == self._file and self._first <= first and end <= self._first + len(self._mapped)
        )


def _map(descriptor: int, first: int, end: int, size: int) -> tuple[pa.Buffer, int]:
    """Map a window around [first, end); return it and its start position in the file."""
    aligned = first - first % HUGE_PAGE_BYTES
    if end <= aligned + KEPT_BYTES:
        try:
            return _map_range(descriptor, aligned, min(aligned + KEPT_BYTES, size))
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            # There may still be enough address space for the requested bytes alone.
    return _map_range(descriptor, first - first % mmap.ALLOCATIONGRANULARITY, end)


def _map_range(descriptor: int, first: int, end: int) -> tuple[pa.Buffer, int]:
    mapped = mmap.mmap(descriptor, end - first, access=mmap.ACCESS_READ, offset=first)
    return pa.py_buffer(mapped), first


_KEPT_OPEN, _FEW = 4, 2
_BLOCK = 1 << 20
_TIME_SLACK_MS = 1000


class FileQueue:
    """The segments of one folder. Safe to share between threads."""

    def __init__(
        self,
        folder: Path,
        file_bytes: int,
        scratch: Path,
        *,
        writable: bool = True,
        ignore_empty_tail: bool = False,
        section: Callable[[], int] = lambda: 0,
    ) -> None:
        """`section` returns the number of this process's exclusive section, 0 outside of one.

        A file that is written is checked once per section, not at each write. With
        `ignore_empty_tail`, empty files at the end are treated as missing, as after
        `remove_empty_tail`.
        """
        self.folder, self.file_bytes, self._scratch = folder, file_bytes, scratch
        self._writable, self._section = writable, section
        self._ignore_empty_tail = ignore_empty_tail
        self._open: OrderedDict[int, tuple[int, tuple[int, int]]] = OrderedDict()
        self._checked_in: dict[int, tuple[int, int]] = {}
        self._read_only: set[int] = set()  # Descriptors of files that cannot be written.
        self._filled, self._window = HoleCache(), MappedWindow()
        self._lock = Lock()

    @naming_obstacles
    def starts(self) -> list[int]:
        """Return the start offsets of the files, ascending.

        Raises StoreDamagedError (STORE_FOREIGN_FILE) if the folder has a file of any other name.
        """
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        parsed = {name: parse_file_name(name) for name in names}
        for name, start in parsed.items():
            if start is None or start % self.file_bytes:
                raise StoreDamagedError(
                    f"{self.folder / name} is not a file of this folder, whose files have"
                    f" {self.file_bytes} bytes.",
                    remedy="Move it away; RocketMQ rejects such a folder, too.",
                    code="STORE_FOREIGN_FILE",
                )
        starts = sorted(start for start in parsed.values() if start is not None)
        while self._ignore_empty_tail and starts and not self._path(starts[-1]).stat().st_size:
            starts.pop()
        return starts

    def ignoring_empty_tail(self) -> "FileQueue":
        """Return a FileQueue for reading the same files, without empty files at the end."""
        return FileQueue(
            self.folder, self.file_bytes, self._scratch, writable=False, ignore_empty_tail=True
        )

    def remove_empty_tail(self) -> None:
        """Delete empty files at the end of the queue, as RocketMQ 5.1.3 and newer do."""
        for start in reversed(self.starts()):
            if self._path(start).stat().st_size:
                return
            self.remove(start)

    def start_of(self, offset: int) -> int:
        """Return the start offset of the file that contains `offset`."""
        return offset - offset % self.file_bytes

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, or fewer at the end of the file."""
        start = self.start_of(offset)
        with self._lock:
            return os.pread(self._checked(start)[0], length, offset - start)

    def filled(self, offset: int, length: int) -> int:
        """Return the number of bytes from `offset` up to the next hole, at most `length`.

        The bytes must be within one file.
        """
        start = self.start_of(offset)
        with self._lock:
            return self._filled.length(self._checked(start)[0], offset - start, length)

    def window(self, offset: int, length: int) -> tuple[pa.Buffer, int]:
        """Map `length` bytes (within one file) for reading; return them and their offset.

        The bytes are valid as long as the buffer lives. See `MappedWindow`.
        """
        start = self.start_of(offset)
        first = offset - start
        with self._lock:
            try:
                descriptor = self._checked(start)[0]
                return self._window.get(descriptor, self._open[start][1], first, length), offset
            except FileNotFoundError:
                self._window.drop()
                raise
            except OSError as error:
                if not isinstance(error, PyrocketError):
                    error.filename = error.filename or str(self._path(start))
                raise
            except ValueError as error:
                raise StoreDamagedError(
                    f"{self.folder / file_name(start)} is shorter than {first + length} bytes.",
                    remedy="Restore it from a backup: the length of these files never changes.",
                ) from error

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write at `offset`, within one existing file. Raises FileNotFoundError.

        A file with a second hard link, in a snapshot, is first replaced by a copy.
        """
        start = self.start_of(offset)
        with self._lock:
            descriptor, links = self._checked(start)
            if descriptor in self._read_only:
                self._close(start)
                os.close(io.open_file(self._path(start), os.O_RDWR))  # Raises if still denied.
                descriptor, links = self._checked(start)
            if links > 1:
                descriptor = self._unshare(start, descriptor)
            io.write_at(descriptor, data, offset - start)

    def write_or_create(self, offset: int, data: bytes | memoryview) -> None:
        """Write at `offset`, within one file; create the file if it is missing."""
        try:
            self.write(offset, data)
        except FileNotFoundError:
            self.create(self.start_of(offset))
            self.write(offset, data)

    def create(self, start: int, content: bytes = b"", at: int = 0) -> None:
        """Create the file that begins at `start` durably, with `content` at byte `at`."""
        io.make_directory(self.folder)
        self._install(start, [(at, content)])

    def _install(self, start: int, parts: Iterable[tuple[int, bytes]], time_ms: int = 0) -> None:
        """Create or replace a file; `parts` are positions in the file and bytes."""
        io.make_directory(self._scratch)
        try:
            io.install_file(
                self._path(start), self._scratch, parts, length=self.file_bytes, time_ms=time_ms
            )
        finally:
            self._checked_in.pop(start, None)

    def _unshare(self, start: int, descriptor: int) -> int:
        """Replace a file by a copy with the same modification time; return its descriptor."""
        time_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
        blocks = (
            (at, os.pread(descriptor, _BLOCK, at)) for at in range(0, self.file_bytes, _BLOCK)
        )
        self._install(
            start, ((at, data) for at, data in blocks if data != bytes(len(data))), time_ms
        )
        return self._checked(start)[0]

    def set_time(self, start: int, ms: int) -> None:
        """Set the modification time (epoch ms) of the file that begins at `start`.

        RocketMQ 4.x uses it for lookups by time, and all versions use it to delete expired files.
        A time that is correct to the second is not changed.
        """
        path = self._path(start)
        if abs(path.stat().st_mtime_ns // 1_000_000 - ms) > _TIME_SLACK_MS:
            io.set_time(path, ms)

    def drop_cached(self) -> None:
        """Drop cached pages after a failed fsync, so that reads return what is on disk.

        The kernel may have marked pages as clean that never reached the disk. Raises SyncError.
        """
        for start in self.starts():
            self._sync_file(start)
            with io.opened(self._path(start), os.O_RDONLY) as descriptor:
                io.drop_cached(descriptor)

    def blocks(self, start: int, end: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of [start, end) in blocks, with their offsets, without holes.

        Each block of a file has the last `overlap` bytes of the block before it.
        """
        for first in self.starts():
            at, stop = max(start, first), min(end, first + self.file_bytes)
            while at < stop and (at := first + data_from(self._path(first), at - first)) < stop:
                data = self.read(at, min(_BLOCK, stop - at))
                yield at, data
                if len(data) <= overlap:
                    break
                at += len(data) - overlap

    def zero(self, start: int, end: int) -> None:
        """Overwrite [start, end) with zeros, except holes."""
        for at, data in self.blocks(start, end):
            if data != bytes(len(data)):
                self.write(at, bytes(len(data)))

    def remove(self, start: int) -> None:
        """Delete the file that begins at `start`."""
        with self._lock:
            self._close(start)
            self._window.drop()
        io.unlink(self.folder / file_name(start))
        io.sync_directory(self.folder)

    def sync(self, start: int, end: int) -> None:
        """Flush the files that overlap [start, end)."""
        overlap = range(self.start_of(start), end, self.file_bytes)
        # If there are many files, list them: the first may have been deleted long ago.
        for first in overlap if len(overlap) <= _FEW else self.starts():
            if first in overlap:
                self._sync_file(first)

    def _sync_file(self, start: int) -> None:
        path = f"{self.folder}/{file_name(start)}"
        # Cleaning may have deleted the file in the meantime.
        with suppress(FileNotFoundError), io.opened(path, os.O_RDONLY) as descriptor:
            io.sync_or_fail(descriptor)

    def close(self) -> None:
        """Close all files. Files are opened again when they are used."""
        with self._lock:
            for start in list(self._open):
                self._close(start)
            self._checked_in.clear()
            self._window.drop()

    def _path(self, start: int) -> Path:
        return self.folder / file_name(start)

    def _close(self, start: int) -> None:
        self._checked_in.pop(start, None)
        known = self._open.pop(start, None)
        if known is not None:
            self._read_only.discard(known[0])
            os.close(known[0])

    def _open_file(self, path: str) -> int:
        """Open a file for reading, and also for writing if possible."""
        if self._writable:
            with suppress(PermissionError):
                return io.open_file(path, os.O_RDWR)
        descriptor = io.open_file(path, os.O_RDONLY)
        self._read_only.add(descriptor)
        return descriptor

    @naming_obstacles
    def _checked(self, start: int) -> tuple[int, int]:
        """Return a descriptor and the hard-link count of the file that is now at the path.

        Another process may have deleted or replaced a file that is open here; a snapshot may still
        have a hard link to it. The caller must hold the thread lock.
        """
        section, known = self._section(), self._open.get(start)
        checked_in, links = self._checked_in.get(start, (0, 0))
        if section and checked_in == section and known is not None:
            self._open.move_to_end(start)
            return known[0], links
        path = f"{self.folder}/{file_name(start)}"
        try:
            there = os.stat(path)
        except OSError:
            self._close(start)
            raise
        if known is not None and known[1] != (there.st_dev, there.st_ino):
            self._close(start)
            known = None
        if known is None:
            descriptor = self._open_file(path)
            there = os.fstat(descriptor)
            known = descriptor, (there.st_dev, there.st_ino)
        self._open[start], self._checked_in[start] = known, (section, there.st_nlink)
        self._open.move_to_end(start)
        if len(self._open) > _KEPT_OPEN:
            self._close(next(iter(self._open)))
        return known[0], there.st_nlink


def read_ranges(files: FileQueue, ranges: list[tuple[int, int]]) -> bytes:
    """Return the bytes of many ranges (offset, length), joined; fewer if a file is short.

    Intended for short ranges that are far apart. If they were mapped, the kernel would read ahead
    around each range, one page fault after the other. Here the kernel gets all ranges of a file in
    advance, so that a disk can read many ranges at a time. Ranges are ascending, each within one
    file. Raises FileNotFoundError.
    """
    parts: list[bytes] = []
    for start, group in groupby(ranges, lambda span: files.start_of(span[0])):
        parts += _ranges_of_file(files.folder / file_name(start), start, list(group))
    return b"".join(parts)


def _ranges_of_file(path: Path, start: int, ranges: list[tuple[int, int]]) -> list[bytes]:
    with io.opened(path, os.O_RDONLY) as descriptor:
        for offset, length in ranges if hasattr(os, "posix_fadvise") else ():
            os.posix_fadvise(descriptor, offset - start, length, os.POSIX_FADV_WILLNEED)
        return [os.pread(descriptor, length, offset - start) for offset, length in ranges]
