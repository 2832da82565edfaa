"""The CommitLog: all topics in one sequence of fixed-size files.

A record never straddles files. At least eight bytes stay free after a record, so that a blank
record can mark the rest of the file as padding (`CommitLog.doAppend`).
"""

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyrocket.disk.file_checks import check_files
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.errors import RESTORE_FILE, MessageError, StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, runs_of
from pyrocket.formats.record import BLANK_BYTES, FIXED_BYTES, encode_blank, read_store_timestamp
from pyrocket.formats.record_batch import Chunk
from pyrocket.formats.record_fields import Sealed, not_sealed


@dataclass(frozen=True)
class Placement:
    """The log offsets at which the records of one batch are written, and the end of the log then.

    `blanks` are the offsets of the blank records that pad the files in between.
    """

    offsets: Ints
    end: int
    blanks: tuple[int, ...]


@dataclass(frozen=True)
class Placed:
    """A batch with the log offsets and queue offsets of its records, in its order."""

    batch: Chunk
    placement: Placement
    queue_offsets: Ints

    @property
    def physical_offsets(self) -> Ints:
        """The log offsets."""
        return self.placement.offsets


class CommitLog:
    """Reads and writes records at log offsets. It knows nothing of queues and takes no locks.

    `sealed` returns the ranges in which every record must have a checksum of the whole record.
    """

    def __init__(self, run: FileQueue, sealed: Sealed = not_sealed) -> None:
        self.run, self.sealed = run, sealed

    @property
    def file_bytes(self) -> int:
        return self.run.file_bytes

    @property
    def max_record_bytes(self) -> int:
        """Size of the largest record that fits in a file together with a blank record."""
        return self.file_bytes - BLANK_BYTES

    def first_offset(self) -> int:
        """Return the start offset of the oldest file; the file size for a log without files.

        A new log does not start at 0: a Java broker would take pre-blank queue entries, which
        point at 0, for messages.
        """
        starts = self.run.starts()
        return starts[0] if starts else self.file_bytes

    def until(self, end: int) -> range:
        """Return the range from the first offset of the log to `end`."""
        return range(self.first_offset(), end)

    def file_end(self, offset: int) -> int:
        """Return the end offset of the file that contains `offset`."""
        return self.run.start_of(offset) + self.file_bytes

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`."""
        return self.run.read(offset, size)

    def stored_at(self, offset: int) -> int:
        """Return the store time (epoch ms) of the record at `offset`; 0 without a record."""
        return read_store_timestamp(self.read(offset, FIXED_BYTES))

    def window(self, offset: int, size: int) -> tuple[pa.Buffer, int]:
        """Map `size` bytes at `offset`, within one file; see `FileQueue.window`."""
        return self.run.window(offset, size)

    def filled_window(self, offset: int, size: int) -> tuple[pa.Buffer, int]:
        """Return `window`, or a copy of bytes with a hole: do not touch one in a mapping."""
        if self.run.filled(offset, size) < size:
            data = self.read(offset, size)
            if len(data) == size:
                return pa.py_buffer(data), offset
        return self.window(offset, size)

    def ends_at(self, end: int) -> bool:
        """Whether the log seems to end at `end`: a quick check, not a proof."""
        starts = self.run.starts()
        if not starts:
            return end == self.first_offset()
        return starts[-1] <= end < self.file_end(starts[-1]) and not self.continues_at(end)

    def continues_at(self, end: int) -> bool:
        """Whether there are nonzero bytes at the offset `end`."""
        try:
            return any(self.read(end, 8))
        except FileNotFoundError:
            return False

    def check_fits(self, sizes: Ints) -> None:
        """Raise MessageError (RECORD_TOO_LARGE) if a record does not fit in a file."""
        if len(sizes) and sizes.max() > self.max_record_bytes:
            raise MessageError(
                f"a record of {int(sizes.max())} bytes does not fit: a log file of this store has"
                f" room for {self.max_record_bytes}.",
                remedy="Send less in one message, or use a store with a larger log_file_bytes.",
                code="RECORD_TOO_LARGE",
            )

    def place(self, start: int, sizes: Ints) -> Placement:
        """Return the placement of records of these sizes, starting at `start` or the next file."""
        if len(sizes) == 1 and start + int(sizes[0]) <= self.file_end(start) - BLANK_BYTES:
            return Placement(np.array([start]), start + int(sizes[0]), ())
        ends = np.cumsum(sizes)
        if len(sizes) and start + int(ends[-1]) <= self.file_end(start) - BLANK_BYTES:
            return Placement(start + ends - sizes, start + int(ends[-1]), ())
        self.check_fits(sizes)
        offsets = np.empty(len(sizes), np.int64)
        blanks = []
        first, position = 0, start
        while first < len(sizes):
            before = ends[first - 1] if first else 0
            room = self.file_end(position) - BLANK_BYTES - position
            last = int(np.searchsorted(ends, before + room, side="right"))
            offsets[first:last] = position + ends[first:last] - sizes[first:last] - before
            if last == len(sizes):
                position += int(ends[-1] - before)
            else:
                blanks.append(position + int((ends[last - 1] if last else 0) - before))
                position = self.file_end(position)
            first = last
        return Placement(offsets, position, tuple(blanks))

    def write(self, placement: Placement, data: pa.Buffer, bounds: Ints) -> None:
        """Write placed records (record i is data[bounds[i]:bounds[i+1]]) and the blanks.

        Raises StoreDamagedError (STORE_FILE_MISSING) if a file that already has records is missing.
        """
        view = memoryview(data)
        for blank in placement.blanks:
            self._write(blank, encode_blank(self.file_end(blank) - blank), placement)
        for first, last in runs_of(placement.offsets // self.file_bytes):
            offset, part = int(placement.offsets[first]), view[bounds[first] : bounds[last]]
            self._write(offset, part, placement)

    def _write(self, offset: int, data: bytes | memoryview, placement: Placement) -> None:
        try:
            self.run.write(offset, data)
        except FileNotFoundError:
            self.check_holds(min([*placement.blanks[:1], int(placement.offsets[0])]))
            self.run.write_or_create(offset, data)

    def check_whole(self, end: int) -> None:
        """Raise StoreDamagedError unless all files up to `end` exist with their full length."""
        self.check_holds(end)
        check_files(self.run, RESTORE_FILE)

    def check_holds(self, end: int) -> None:
        """Raise StoreDamagedError (STORE_FILE_MISSING) if the last file of the log is missing.

        `end` is a known end of the log: either inside a file with records or at the end of one.
        """
        start = self.run.start_of(end)
        if start < end and not os.path.exists(f"{self.run.folder}/{file_name(start)}"):
            raise StoreDamagedError(
                f"{self.run.folder} lacks the file {file_name(start)}: the log ends at {end}.",
                remedy="Restore it from a backup; nothing has been changed. To give up its"
                " messages, delete `pyrocket/state` and create an empty file `abort` in the store.",
                code="STORE_FILE_MISSING",
            )

    def truncate(self, start: int, end: int) -> None:
        """Truncate [start, end) durably: delete the files in it and zero the rest."""
        # Backwards from the last file: a crash in between must not leave a gap.
        for first in reversed(self.run.starts()):
            if first >= start and first > self.run.start_of(start):
                self.run.remove(first)
        self.run.zero(start, end)
        self.run.sync(start, end)
