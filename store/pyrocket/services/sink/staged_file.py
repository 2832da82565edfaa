"""Staged records on disk, written by a task and read by whoever publishes them.

Writing is one pass without an fsync: what a crash takes, the query stages again. Reading goes block
by block, so that rows of any number take the memory of one block. What has been read for the last
time is removed at once, before its copy is durable: so the copy takes its place in memory instead
of new memory, which may cost several times as much, and on the disk nothing is there twice.
"""

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pyarrow as pa

from pyrocket.disk import io
from pyrocket.errors import SinkError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.message_keys import MessageKeys
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.formats.staged_block import (
    INDEX_LENGTH_BYTES,
    SEGMENT_BYTES,
    BlockColumns,
    BlockIndex,
    aligned,
    decode_columns,
    decode_index,
    encode_columns,
    encode_index,
    index_block,
    sum_of_words,
)

_PIECE = 4 * 1024 * 1024


def segment_path(path: Path, segment: int) -> Path:
    """Return where a segment is; the first is the file itself."""
    return path.with_name(f"{path.name}.{segment}") if segment else path


class StagedWriter:
    """Writes one file and its segments; the descriptor of the file is this object's from now on."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._file = path, descriptor
        self._segment, self._data, self._data_end = 0, descriptor, 0
        self._end = 0
        self._blocks: list[BlockIndex] = []

    def add(self, batch: EncodedBatch) -> None:
        """Write a batch behind those before. Raises OSError."""
        if self._data_end >= SEGMENT_BYTES:
            self._begin_segment()
        columns = encode_columns(batch)
        data_at = self._data_end if self._segment else self._end
        data_end = aligned(data_at + batch.data.size)
        columns_at = self._end if self._segment else data_end
        io.write_at(self._data, memoryview(batch.data), data_at)
        io.write_at(self._file, columns, columns_at)
        self._blocks.append(index_block(batch, columns, self._segment, data_at, columns_at))
        self._data_end, self._end = data_end, aligned(columns_at + len(columns))

    def _begin_segment(self) -> None:
        self._close_segment()
        self._segment, self._data_end = self._segment + 1, 0
        path = segment_path(self._path, self._segment)
        self._data = io.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def finish(self) -> tuple[int, int]:
        """Write the index, close the files; return the length and the checksum. Raises OSError."""
        index, checksum = encode_index(self._blocks)
        tail = index + len(index).to_bytes(INDEX_LENGTH_BYTES, "little")
        io.write_at(self._file, tail, self._end)
        self.close()
        return self._end + len(tail), checksum

    def close(self) -> None:
        """Close the files; once is enough."""
        self._close_segment()
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _close_segment(self) -> None:
        descriptor, self._data = self._data, -1
        if descriptor >= 0 and self._segment:
            os.close(descriptor)


class StagedChunk:
    """A block whose columns are known and whose records are read by `load`."""

    def __init__(self, file: "StagedReader", block: BlockIndex, columns: BlockColumns) -> None:
        self._file, self._block, self._columns = file, block, columns
        self.topic, self.sizes = columns.topic, columns.sizes
        self.queue_ids, self.tags_codes = columns.queue_ids, columns.tags_codes
        self.keys: MessageKeys | None = columns.keys
        self.delays: Ints | None = columns.delays
        self.crc_room = block.crc_room

    def __len__(self) -> int:
        return len(self.queue_ids)

    def load(self) -> EncodedBatch:
        """Return the records, to be changed freely, until the file's next chunk is loaded."""
        columns = self._columns
        return EncodedBatch(
            topic=self.topic,
            data=self._file.load(self._block),
            bounds=columns.bounds,
            queue_ids=columns.queue_ids,
            tags_codes=columns.tags_codes.copy(),
            keys=columns.keys,
            delays=columns.delays,
            due=columns.due,
            crc_room=True,
        )


class StagedReader:
    """Reads what one task has staged. Raises SinkError (STAGED_BROKEN) unless all is as it was."""

    def __init__(self, path: Path, length: int, checksum: int) -> None:
        """Open it; raises FileNotFoundError."""
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
        """Close the files."""
        while self._files:
            self._files.popitem()[1].close()

    def _open_segment(self, segment: int) -> None:
        try:
            self._files[segment] = FileIO(
                io.open_file(segment_path(self._path, segment), os.O_RDONLY)
            )
        except FileNotFoundError:
            raise self._broken(f"segment {segment}, which is missing,") from None

    def _read_index(self, length: int, checksum: int) -> list[BlockIndex]:
        size = self._read(INDEX_LENGTH_BYTES, max(length - INDEX_LENGTH_BYTES, 0))
        index_bytes = int.from_bytes(size, "little")
        at = length - INDEX_LENGTH_BYTES - index_bytes
        blocks = None
        if len(size) == INDEX_LENGTH_BYTES and at >= 0:
            blocks = decode_index(self._read(index_bytes, at), checksum)
        if not blocks:
            raise self._broken("its index")
        return blocks

    def check(self) -> None:
        """Read all of it once and compare the sums. Raises SinkError."""
        piece = memoryview(bytearray(_PIECE))
        for block in self.blocks:
            self._columns(block)
            total = 0
            for at in range(0, block.data_bytes, _PIECE):
                part = piece[: min(_PIECE, block.data_bytes - at)]
                self._fill(part, block, at)
                total += sum_of_words(part)
            if total % 2**64 != block.data_sum:
                raise self._broken(f"the sum of the records at {block.data_at}")

    def chunks(self) -> Iterator[StagedChunk]:
        """Yield the blocks in order, again at each call."""
        for block in self.blocks:
            yield StagedChunk(self, block, self._columns(block))

    def load(self, block: BlockIndex) -> pa.Buffer:
        """Return a block's records, once, in memory that the next block takes."""
        if len(self._buffer) < block.data_bytes:
            self._buffer = bytearray(block.data_bytes)
        view = memoryview(self._buffer)[: block.data_bytes]
        self._fill(view, block, 0)
        if block is self._last[block.segment]:
            self._drop(block.segment)
        return pa.py_buffer(view)

    def _drop(self, segment: int) -> None:
        """Remove a segment; what the file with the index holds besides is still needed."""
        if segment:
            io.unlink(segment_path(self._path, segment))
            self._files.pop(segment).close()

    def _fill(self, view: memoryview, block: BlockIndex, start: int) -> None:
        """Read bytes of a block from `start` on until the view is full."""
        file = self._files.get(block.segment)
        if file is None:
            raise self._broken("its length")
        file.seek(block.data_at + start)
        while view:
            count = file.readinto(view)
            if not count:
                raise self._broken("its length")
            view = view[count:]

    def _read(self, length: int, at: int) -> bytes:
        """Read from the file with the index, less at its end."""
        self._files[0].seek(at)
        return self._files[0].read(length)

    def _columns(self, block: BlockIndex) -> BlockColumns:
        data = self._read(block.columns_bytes, block.columns_at)
        columns = decode_columns(block, data)
        if columns is None:
            raise self._broken(f"what says of the records at {block.data_at} where they go")
        return columns

    def _broken(self, what: str) -> SinkError:
        return SinkError(
            f"the staged file {self._path} has been changed or lost bytes: {what} is wrong.",
            remedy="Run the write again: nothing of it has been published.",
            code="STAGED_BROKEN",
        )
