"""A run of fixed-size files behind one growing offset: the log, or one queue.

File k begins at the offset its name says; all have the same length, made at once and sparse.
Reads never change anything; writes create files as they need them. A new file is made complete in
a scratch folder and renamed in, so that no other process ever meets a short one.
"""

import mmap
import os
import uuid
from collections import OrderedDict
from pathlib import Path
from threading import Lock

import pyarrow as pa

from pyrocket.disk import io
from pyrocket.disk.layout import file_name, parse_file_name
from pyrocket.errors import StoreDamagedError

_KEPT_OPEN = 4


class FileRun:
    """The files of one folder. Safe to share between threads."""

    def __init__(
        self, folder: Path, file_bytes: int, scratch: Path, *, writable: bool = True
    ) -> None:
        self.folder, self.file_bytes, self._scratch = folder, file_bytes, scratch
        self._writable = writable
        self._open: OrderedDict[int, int] = OrderedDict()
        self._lock = Lock()

    def starts(self) -> list[int]:
        """Return the start offsets of the files, ascending. Foreign names raise."""
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        parsed = {name: parse_file_name(name) for name in names}
        for name, start in parsed.items():
            if start is None or start % self.file_bytes:
                raise StoreDamagedError(
                    f"{self.folder / name} does not fit a run of files of {self.file_bytes} bytes.",
                    remedy="Move it away; RocketMQ refuses such a folder too.",
                    code="STORE_FOREIGN_FILE",
                )
        return sorted(start for start in parsed.values() if start is not None)

    def check_whole(self) -> None:
        """Raise StoreDamagedError if a file is missing between two others, or is cut short."""
        starts = self.starts()
        for at, start in enumerate(starts):
            path = self.folder / file_name(start)
            if path.stat().st_size != self.file_bytes:
                raise StoreDamagedError(
                    f"{path} has {path.stat().st_size} bytes, not {self.file_bytes}.",
                    remedy="Restore it from a backup; nothing has been changed.",
                    code="STORE_FILE_LENGTH",
                )
            if start != starts[0] + at * self.file_bytes:
                raise StoreDamagedError(
                    f"{self.folder} lacks the file before {file_name(start)}.",
                    remedy="Restore it from a backup; nothing has been changed.",
                    code="STORE_FILE_MISSING",
                )

    def start_of(self, offset: int) -> int:
        """Return where the file that holds `offset` begins."""
        return offset - offset % self.file_bytes

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at `offset`, fewer at the end of the file."""
        start = self.start_of(offset)
        with self._lock:
            return os.pread(self._descriptor(start), length, offset - start)

    def window(self, offset: int, length: int) -> tuple[pa.Buffer, int]:
        """Map `length` bytes (within one file) for reading; return them and the first offset.

        The mapping begins at a page and lives as long as the buffer.
        """
        start = self.start_of(offset)
        first = offset - start
        aligned = first - first % mmap.ALLOCATIONGRANULARITY
        with self._lock:
            descriptor = self._descriptor(start)
            try:
                mapped = mmap.mmap(
                    descriptor, first + length - aligned, access=mmap.ACCESS_READ, offset=aligned
                )
            except ValueError as error:
                raise StoreDamagedError(
                    f"{self.folder / file_name(start)} is shorter than {first + length} bytes.",
                    remedy="Restore it from a backup: files of a run never change their length.",
                ) from error
        return pa.py_buffer(mapped), start + aligned

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write at `offset`, within one file that exists."""
        start = self.start_of(offset)
        with self._lock:
            io.write_at(self._descriptor(start), data, offset - start)

    def ensure(self, start: int) -> None:
        """Make the file that begins at `start` if it is missing."""
        with self._lock:
            descriptor = self._open.get(start)
            if descriptor is not None and os.fstat(descriptor).st_nlink:
                return
        if not (self.folder / file_name(start)).exists():
            self.create(start)

    def create(self, start: int, content: bytes = b"", at: int = 0) -> None:
        """Make the file that begins at `start`, with `content` at byte `at`."""
        io.make_directory(self.folder)
        io.make_directory(self._scratch)
        draft = self._scratch / f"{file_name(start)}.{uuid.uuid4().hex}"
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        try:
            try:
                io.set_length(descriptor, self.file_bytes)
                io.write_at(descriptor, content, at)
            finally:
                os.close(descriptor)
            io.rename(draft, self.folder / file_name(start))
        except OSError:
            io.unlink(draft)
            raise
        io.sync_directory(self.folder)

    def zero(self, start: int, end: int) -> None:
        """Make [start, end) read as zeros, leaving holes as they are."""
        block = 1 << 20
        for first in self.starts():
            low, high = max(start, first), min(end, first + self.file_bytes)
            for at in range(low, high, block):
                data = self.read(at, min(block, high - at))
                if data.strip(b"\0"):
                    self.write(at, bytes(len(data)))

    def remove(self, start: int) -> None:
        """Remove the file that begins at `start`."""
        with self._lock:
            descriptor = self._open.pop(start, None)
        if descriptor is not None:
            os.close(descriptor)
        io.unlink(self.folder / file_name(start))
        io.sync_directory(self.folder)

    def sync(self, start: int, end: int) -> None:
        """Make the files that overlap [start, end) durable."""
        for first in self.starts():
            if first < end and start < first + self.file_bytes:
                descriptor = os.open(self.folder / file_name(first), os.O_RDONLY)
                try:
                    io.sync(descriptor)
                except OSError as error:
                    raise io.SyncError(*error.args) from error
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            for descriptor in self._open.values():
                os.close(descriptor)
            self._open.clear()

    def _descriptor(self, start: int) -> int:
        """Return an open descriptor of the file that begins at `start`; the lock is held."""
        descriptor = self._open.pop(start, None)
        if descriptor is not None and os.fstat(descriptor).st_nlink == 0:
            # Another process removed the file, and may have made a new one of that name.
            os.close(descriptor)
            descriptor = None
        if descriptor is None:
            mode = os.O_RDWR if self._writable else os.O_RDONLY
            descriptor = os.open(self.folder / file_name(start), mode)
        self._open[start] = descriptor
        if len(self._open) > _KEPT_OPEN:
            os.close(self._open.popitem(last=False)[1])
        return descriptor
