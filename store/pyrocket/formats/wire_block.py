"""Blocks: raw records that a broker sends to its clients or receives from them.

    header     32 bytes, little-endian: `HEADER`
    sizes      sizes of the records, 4 bytes each
    order      only with IN_ORDER: the rows in the requested order, 4 bytes each
    records    the records in log order, without gaps

A block without records reports the progress of a read, at its end or before an error. The broker
checks the records when it reads them. The client checks them again, because it uses their lengths
as positions in memory.

In a block from a client, only magic, rows and bytes of the header are set. Its records are of one
topic, without the fields that an append sets.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyrocket.errors import UnsupportedError
from pyrocket.formats.arrow_buffers import Ints, binary_runs, text_bytes
from pyrocket.formats.record_columns import SEVERAL_QUEUES
from pyrocket.formats.record_fields import OPEN_END, RecordFields, SealedRanges
from pyrocket.formats.record_slice import RecordSlice
from pyrocket.values.message import MessageQueue

BLOCK_BYTES = 4 << 20
"""Approximate size of the records of a block; a longer record has a block of its own.

Both sides need 10 to 20 % less CPU time than with blocks of half this size."""

HEADER = np.dtype(
    [
        ("magic", "<u4"),
        ("flags", "<u4"),
        ("range", "<u4"),
        ("rows", "<u4"),
        ("bytes", "<u4"),
        ("entries", "<u4"),
        ("records", "<u4"),
        ("reserved", "<u4"),
    ]
)
"""range: index of the requested range. rows, bytes: number and size of the records. entries,
records: counts of `ScanTally` from the end of the previous block to the end of this one."""

_MAGIC = 0x31425250  # "PRB1"
_IN_ORDER, _SEALED = 1, 2
_INT = np.dtype("<i4")


@dataclass(frozen=True)
class Block:
    """A received block: see `HEADER`."""

    range: int
    entries: int
    records: int
    part: RecordSlice | None


def encode_block(
    part: RecordSlice | None, *, range_index: int = 0, entries: int = 0, records: int = 0
) -> bytes:
    """Encode records of one queue, or of several queues with an order, as a block."""
    header = np.zeros((), HEADER)
    header["magic"], header["range"] = _MAGIC, range_index
    header["entries"], header["records"] = entries, records
    if part is None or not len(part):
        return header.tobytes()
    content = _joined(part.records)
    order = b"" if part.order is None else part.order.astype(_INT).tobytes()
    is_sealed = bool(part.records.sealed().cover(part.records.physical_offset[:1]).all())
    header["flags"] = _IN_ORDER * (part.order is not None) | _SEALED * is_sealed
    header["rows"], header["bytes"] = len(part), len(content)
    sizes = part.records.sizes.astype(_INT).tobytes()
    return b"".join([header.tobytes(), sizes, order, content])


def pieces(part: RecordSlice) -> Iterator[RecordSlice]:
    """Yield a slice in pieces of about BLOCK_BYTES; no piece has both sealed and
    unsealed records.
    """
    if part.order is not None:
        yield part
        return
    ends = np.cumsum(part.records.sizes)
    cuts = set(np.searchsorted(ends, np.arange(BLOCK_BYTES, ends[-1], BLOCK_BYTES)).tolist())
    sealed = part.records.sealed().cover(part.records.physical_offset)
    cuts |= set((np.flatnonzero(sealed[1:] != sealed[:-1]) + 1).tolist())
    bounds = sorted({0, *cuts, len(part)})
    for start, end in itertools.pairwise(bounds):
        yield part.part(slice(start, end))


def encode_records(records: memoryview, sizes: Ints) -> bytes:
    """Encode consecutive records as a block to be sent by a client."""
    header = np.zeros((), HEADER)
    header["magic"], header["rows"], header["bytes"] = _MAGIC, len(sizes), len(records)
    return b"".join([header.tobytes(), sizes.astype(_INT).tobytes(), records])


def decode_records(data: bytes) -> tuple[pa.Buffer, Ints]:
    """Return the records of a client's block and their sizes. The records use the memory of `data`.

    The sizes are positive and add up. Raises ValueError if the bytes are not such a block.
    """
    header = np.frombuffer(data, HEADER, 1)[0]
    rows, size = int(header["rows"]), int(header["bytes"])
    begin = HEADER.itemsize + rows * _INT.itemsize
    if header["magic"] != _MAGIC or header["flags"] or not rows or len(data) != begin + size:
        raise ValueError("its header is invalid")
    sizes = np.frombuffer(data, _INT, rows, HEADER.itemsize).astype(np.int64)
    if sizes.min() <= 0 or sizes.sum() != size:
        raise ValueError("its sizes do not add up")
    return pa.py_buffer(data).slice(begin), sizes


def decode_block(data: bytes, queues: list[MessageQueue], log_file_bytes: int) -> Block:
    """Decode a block, whose records share the memory of `data`; `queues` are those of the ranges.

    Raises RecordDamagedError, and UnsupportedError if the bytes are not a block.
    """
    if len(data) < HEADER.itemsize:
        raise _not_a_block("it is too short")
    header = np.frombuffer(data, HEADER, 1)[0]
    rows, size, place = int(header["rows"]), int(header["bytes"]), int(header["range"])
    in_order = bool(header["flags"] & _IN_ORDER)
    lists = rows * _INT.itemsize * (1 + in_order)
    if header["magic"] != _MAGIC or len(data) != HEADER.itemsize + lists + size:
        raise _not_a_block("its header is invalid")
    if place >= len(queues):
        raise _not_a_block("its range was not requested")
    part = None
    if rows:
        sizes = np.frombuffer(data, _INT, rows, HEADER.itemsize).astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        buffer = pa.py_buffer(data).slice(HEADER.itemsize + lists)
        fields = RecordFields(buffer, 0, starts, sizes)
        fields = _placed(fields, sealed=bool(header["flags"] & _SEALED), file_bytes=log_file_bytes)
        order, queue = None, queues[place]
        if in_order:
            order = np.frombuffer(data, _INT, rows, HEADER.itemsize + 4 * rows).astype(np.int64)
            queue = queue._replace(queue_id=SEVERAL_QUEUES)
        part = RecordSlice(queue, fields, order=order)
    return Block(place, int(header["entries"]), int(header["records"]), part)


def _placed(fields: RecordFields, *, sealed: bool, file_bytes: int) -> RecordFields:
    """Check the records, and return them with their log offsets."""
    inside = (fields.starts >= 0) & (fields.sizes > 0)
    inside &= fields.starts <= len(fields.data) - fields.sizes
    if not inside.all() or int(fields.sizes.sum()) != len(fields.data):
        raise _not_a_block("its sizes do not add up")
    ranges = SealedRanges(((0, OPEN_END),) if sealed else (), file_bytes)
    base = fields.field("physical_offset") - fields.starts
    placed = RecordFields(fields.buffer, base, fields.starts, fields.sizes, lambda: ranges)
    placed.__dict__["_headers"] = fields.__dict__["_headers"]
    placed.check_structure()
    return placed


def _joined(records: RecordFields) -> memoryview:
    starts, ends = records.starts, records.starts + records.sizes
    if bool((starts[1:] == ends[:-1]).all()):
        return memoryview(records.buffer)[int(starts[0]) : int(ends[-1])]
    return text_bytes(binary_runs(records.buffer, starts, ends)).data


def _not_a_block(reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"the broker sent bytes that are not a block of records: {reason}.",
        remedy="Use the same release of pyrocket on both sides.",
        code="PROTOCOL_BROKEN",
    )
