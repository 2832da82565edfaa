"""Writes staged records for a task and reads them for the publisher.

Writing is one pass without an fsync: after a crash the query stages its rows again. Reading
proceeds block by block and needs the memory of only one block. A segment is deleted as soon as its
last block has been read, before the appended copy is flushed. Therefore the copy can reuse the
pages of the segment, which is several times faster than allocating new pages, and the disk never
has to hold both the segment and its copy.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from io import FileIO
from pathlib import Path

import pyarrow as pa

from pyrocket.disk import io
from pyrocket.errors import SinkError
from pyrocket.formats.record_batch import EncodedBatch, StagedBatch
from pyrocket.formats.staged_block import (
    INDEX_LENGTH_BYTES,
    SEGMENT_BYTES,
    BlockIndex,
    aligned,
    decode_columns,
    decode_index,
    encode_columns,
    encode_index,
    index_block,
    sum_of_words,
)


def segment_path(path: Path, segment: int) -> Path:
    """Return the path of a segment; segment 0 is the file itself."""
    return path.with_name(f"{path.name}.{segment}") if segment else path


class StagedFileWriter:
    """Writes one file and its segments. Owns the file descriptor."""

    def __init__(self, path: Path, descriptor: int, blocks: Sequence[BlockIndex] = ()) -> None:
        """Continue after `blocks`, which an earlier writer has written. Raises OSError."""
        self._path, self._file = path, descriptor
        self._segment, self._data, self._data_end = 0, descriptor, 0
        self._end = 0
        self.blocks = [*blocks]
        if blocks:
            self._data_end = aligned(blocks[-1].data_at + blocks[-1].data_bytes)
            self._end = aligned(blocks[-1].columns_at + blocks[-1].columns_bytes)
            self._open_segment(blocks[-1].segment)

    def add(self, batch: EncodedBatch) -> None:
        """Write a batch at the end. Raises OSError."""
        if self._data_end >= SEGMENT_BYTES:
            self._close_segment()
            self._open_segment(self._segment + 1)
            self._data_end = 0
        columns = encode_columns(batch)
        data_at = self._data_end if self._segment else self._end
        data_end = aligned(data_at + batch.data.size)
        columns_at = self._end if self._segment else data_end
        io.write_at(self._data, memoryview(batch.data), data_at)
        io.write_at(self._file, columns, columns_at)
        self.blocks.append(index_block(batch, columns, self._segment, data_at, columns_at))
        self._data_end, self._end = data_end, aligned(columns_at + len(columns))

    def _open_segment(self, segment: int) -> None:
        self._segment = segment
        if segment:
            path = segment_path(self._path, segment)
            self._data = io.open_file(path, os.O_WRONLY | os.O_CREAT)

    def finish(self) -> tuple[int, int]:
        """Write the index and close the files; return length and checksum. Raises OSError."""
        index, checksum = encode_index(self.blocks)
        tail = index + len(index).to_bytes(INDEX_LENGTH_BYTES, "little")
        io.write_at(self._file, tail, self._end)
        self.close()
        return self._end + len(tail), checksum

    def close(self) -> None:
        """Close the files; may be called twice."""
        self._close_segment()
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _close_segment(self) -> None:
        descriptor, self._data = self._data, -1
        if descriptor >= 0 and self._segment:
            os.close(descriptor)


class StagedReader:
    """Reads what one task has staged. Raises SinkError (STAGED_BROKEN) if it was changed."""

    def __init__(self, path: Path, length: int, checksum: int) -> None:
        """Open the file. Raises FileNotFoundError."""
        self._path = path
        self._files = {0: FileIO(io.open_file(path, os.O_RDONLY))}
        self._buffer = bytearray()
        try:
            self.blocks = self._read_index(length, checksum)
            self._last = {block.segment: block for block in self.blocks}
            for segment in filter(None, self._last):
                self._open_segment(segment)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "StagedReader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _open_segment(self, segment: int) -> None:
        try:
            self._files[segment] = FileIO(
                io.open_file(segment_path(self._path, segment), os.O_RDONLY)
            )
        except FileNotFoundError:
            raise self._broken(f"segment {segment} is missing") from None

    def _read_index(self, length: int, checksum: int) -> list[BlockIndex]:
        size = self._read(INDEX_LENGTH_BYTES, max(length - INDEX_LENGTH_BYTES, 0))
        index_bytes = int.from_bytes(size, "little")
        at = length - INDEX_LENGTH_BYTES - index_bytes
        blocks = None
        if len(size) == INDEX_LENGTH_BYTES and at >= 0:
            blocks = decode_index(self._read(index_bytes, at), checksum)
        if not blocks:
            raise self._broken("its index is invalid")
        return blocks

    def check(self) -> None:
        """Check the columns, and that no record is missing. Raises SinkError."""
        for block in self.blocks:
            self._columns(block)
            file = self._files.get(block.segment)
            if file is None or os.fstat(file.fileno()).st_size < block.data_at + block.data_bytes:
                raise self._broken("it is too short")

    def chunks(self) -> Iterator[StagedBatch]:
        """Yield the blocks in order; may be called again."""
        return map(self._columns, self.blocks)

    def load(self, block: BlockIndex) -> pa.Buffer:
        """Return a block's records, only once; they are valid until the next call."""
        if len(self._buffer) < block.data_bytes:
            self._buffer = bytearray(block.data_bytes)
        view = memoryview(self._buffer)[: block.data_bytes]
        left, file = view, self._files[block.segment]
        file.seek(block.data_at)
        while count := file.readinto(left):
            left = left[count:]
        if left or sum_of_words(view) != block.data_sum:
            raise self._broken(f"the records at {block.data_at} have another checksum")
        if block is self._last[block.segment]:
            self._drop(block.segment)
        return pa.py_buffer(view)

    def _drop(self, segment: int) -> None:
        """Delete a segment. Segment 0 is not deleted, because it contains the index."""
        if segment:
            io.unlink(segment_path(self._path, segment))
            self._files.pop(segment).close()

    def _read(self, length: int, at: int) -> bytes:
        """Read from segment 0; returns fewer bytes at its end."""
        self._files[0].seek(at)
        return self._files[0].read(length)

    def _columns(self, block: BlockIndex) -> StagedBatch:
        data = self._read(block.columns_bytes, block.columns_at)
        columns = decode_columns(block, data, partial(self.load, block))
        if columns is None:
            raise self._broken(f"the columns of the records at {block.data_at} are invalid")
        return columns

    def _broken(self, why: str) -> SinkError:
        return SinkError(
            f"the staged file {self._path} was changed or has lost bytes: {why}.",
            remedy="Run the write again: nothing of it has been published.",
            code="STAGED_BROKEN",
        )
