"""Staged records: blocks of records, their columns, and an index of them.

    name       blocks and all columns, in order; then the index and its length, 8 bytes
    name.1 …   further blocks: segments of about SEGMENT_BYTES

A block has records as they are appended to the log. Its columns are consecutive arrays: tags codes
and, if present, delays (8 bytes per row); sizes and queue ids (4 bytes per row); row and hash of
each key (4 bytes each). The index is JSON, a list with one entry per block. It contains a CRC-32 of
the columns, and the sum of the records' bytes as 64-bit words, which is fast to compute and reveals
lost bytes. So the CRC-32 of the index covers the entire file. Each part begins at a multiple of 8.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from pyrocket.formats.checksum import crc32
from pyrocket.formats.message_keys import MessageKeys
from pyrocket.formats.record_batch import EncodedBatch, StagedBatch

SEGMENT_BYTES = 32 * 1024 * 1024
"""After this size the next block begins a new segment. Segments are deleted after being read."""

INDEX_LENGTH_BYTES = 8
_ALIGNMENT = 8
_LONG, _INT = 8, 4
_WORD_MASK = 2**64 - 1


@dataclass(frozen=True)
class BlockIndex:
    """The index entry of a block: the positions and contents of its parts.

    keys: number of keys; -1 if keys were not extracted. due, crc_room: see `EncodedBatch`.
    segment: the segment with the records; 0 is the file with the index.
    """

    topic: str
    rows: int
    keys: int
    delayed: bool
    due: int | None
    segment: int
    data_at: int
    data_bytes: int
    columns_at: int
    data_sum: int
    columns_crc: int
    crc_room: bool = True

    @property
    def columns_bytes(self) -> int:
        """The size of the columns in bytes."""
        a_row = 2 * _INT + _LONG * (2 if self.delayed else 1)
        return a_row * self.rows + 2 * _INT * max(self.keys, 0)


def encode_columns(batch: EncodedBatch) -> bytes:
    """Encode the columns of a batch."""
    parts = [batch.tags_codes.astype("<i8")]
    if batch.delays is not None:
        parts.append(batch.delays.astype("<i8"))
    parts += [batch.sizes.astype("<i4"), batch.queue_ids.astype("<i4")]
    if batch.keys is not None:
        parts += [batch.keys.rows.astype("<i4"), batch.keys.hashes.astype("<i4")]
    return b"".join(part.tobytes() for part in parts)


def index_block(
    batch: EncodedBatch, columns: bytes, segment: int, data_at: int, columns_at: int
) -> BlockIndex:
    """Return the index entry of a batch at these positions."""
    return BlockIndex(
        topic=batch.topic,
        rows=len(batch),
        keys=-1 if batch.keys is None else len(batch.keys),
        delayed=batch.delays is not None,
        due=batch.due,
        segment=segment,
        data_at=data_at,
        data_bytes=batch.data.size,
        columns_at=columns_at,
        data_sum=sum_of_words(memoryview(batch.data)),
        columns_crc=crc32(columns),
        crc_room=batch.crc_room,
    )


def decode_columns(
    block: BlockIndex, data: bytes, read: Callable[[], pa.Buffer]
) -> StagedBatch | None:
    """Decode the columns of a block whose records `read` returns.

    Returns None if the bytes do not match the checksum.
    """
    if len(data) != block.columns_bytes or crc32(data) != block.columns_crc:
        return None
    rows, longs = block.rows, 2 if block.delayed else 1
    wide = np.frombuffer(data, "<i8", longs * rows)
    narrow = np.frombuffer(data, "<i4", offset=wide.nbytes)
    keys = None
    if block.keys >= 0:
        of_keys = narrow[2 * rows :].astype(np.int64)
        keys = MessageKeys(of_keys[: block.keys], of_keys[block.keys :])
    return StagedBatch(
        topic=block.topic,
        sizes=narrow[:rows].astype(np.int64),
        queue_ids=narrow[rows : 2 * rows],
        tags_codes=wide[:rows].copy(),
        keys=keys,
        delays=wide[rows:] if block.delayed else None,
        due=block.due,
        crc_room=block.crc_room,
        read=read,
    )


def aligned(position: int) -> int:
    """Return the first position from `position` on at which a part may begin."""
    return position + -position % _ALIGNMENT


def sum_of_words(data: memoryview) -> int:
    """Return the sum of the bytes as little-endian 64-bit words, modulo 2⁶⁴."""
    whole = len(data) - len(data) % _ALIGNMENT
    total = int(np.frombuffer(data[:whole], "<u8").sum(dtype=np.uint64))
    return total + int.from_bytes(data[whole:], "little") & _WORD_MASK


def encode_index(blocks: Sequence[BlockIndex]) -> tuple[bytes, int]:
    """Return the index of a file's blocks, and the file's checksum."""
    index = json.dumps([asdict(block) for block in blocks]).encode()
    return index, crc32(index)


def decode_index(data: bytes, checksum: int) -> list[BlockIndex] | None:
    """Decode the index entries; None if the bytes do not match the checksum."""
    if crc32(data) != checksum:
        return None
    return [BlockIndex(**block) for block in json.loads(data)]
