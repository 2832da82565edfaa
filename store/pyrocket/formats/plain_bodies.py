"""Bodies as their senders knew them: of records, those that are compressed inflated.

A few bytes of log may inflate to a thousand times as many. So a call does a bounded part, and holds
twice that at most, and the body that goes beyond it.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyrocket.config import COMPRESS_BODY_FROM_BYTES
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints, text_bytes
from pyrocket.formats.compression import LACKS_FLAG, inflate, lacks_flag
from pyrocket.formats.record import SYS_COMPRESSED, SYS_COMPRESSION_MASK
from pyrocket.formats.record_fields import RecordFields


def plain_bodies(fields: RecordFields, most: int) -> pa.BinaryArray:
    """Return the plain bodies of the first records, up to the one with which they are `most` bytes.

    Where no body is compressed, those of all records. Raises StoreDamagedError.
    """
    compressed = (fields.sys_flag & SYS_COMPRESSED) != 0
    rows = np.flatnonzero(compressed)
    if not len(rows):
        _check_flags(fields)
        return fields.bodies()
    # More are too many in any case: senders leave shorter ones as they are.
    some = rows[: max(most // COMPRESS_BODY_FROM_BYTES, 1)]
    others = np.cumsum(np.where(compressed, 0, fields.body_length))
    plain = _inflate_some(fields, some, most - others[some])
    if not plain:
        fields = fields.head(int(rows[0]))
    elif len(plain) < len(rows) or sum(map(len, plain)) + others[-1] >= most:
        fields = fields.head(int(rows[len(plain) - 1]) + 1)
    _check_flags(fields)
    return _put_in(fields, rows[: len(plain)], plain)


def _inflate_some(fields: RecordFields, rows: Ints, room: Ints) -> list[bytes]:
    """Return the plain bodies of `rows`, up to the first that has no room.

    It has where those before it have less than its `room` of bytes.
    """
    data = memoryview(fields.buffer)
    starts = fields.body_start[rows]
    columns = (starts, starts + fields.body_length[rows], fields.sys_flag[rows], room)
    plain: list[bytes] = []
    total = 0
    for start, end, flag, most in zip(*(column.tolist() for column in columns), strict=True):
        if total >= most:
            break
        try:
            body = inflate(bytes(data[start:end]), flag)
        except StoreDamagedError:
            sound = np.ones(len(fields), bool)
            sound[rows[len(plain)]] = False
            fields.demand(sound, "its compressed body does not inflate")
            raise
        plain.append(body)
        total += len(body)
    return plain


def _put_in(fields: RecordFields, rows: Ints, plain: list[bytes]) -> pa.BinaryArray:
    """Return the bodies as stored, but for those at `rows`: these are `plain`, copied once."""
    lengths = fields.body_length.astype(np.int32)
    lengths[rows] = np.fromiter(map(len, plain), np.int32, len(plain))
    bounds = np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)))
    data = b"".join(plain if len(rows) == len(fields) else _between(fields, rows, plain))
    parts = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(fields), parts)


def _between(fields: RecordFields, rows: Ints, plain: list[bytes]) -> Iterator[bytes | memoryview]:
    """Yield what the data of all bodies consists of: `plain`, and what stands between those."""
    others = np.ones(len(fields), bool)
    others[rows] = False
    data = text_bytes(fields.part(others).bodies()).data
    lengths = np.where(others, fields.body_length, 0)
    at = 0
    for end, body in zip(np.cumsum(lengths)[rows].tolist(), plain, strict=True):
        yield data[at:end]
        yield body
        at = end
    yield data[at:]


def _check_flags(fields: RecordFields) -> None:
    """Raise StoreDamagedError at a body that is compressed, and not said to be."""
    flags = fields.sys_flag
    doubtful = ((flags & SYS_COMPRESSION_MASK) != 0) & ((flags & SYS_COMPRESSED) == 0)
    if not doubtful.any():
        return
    bodies = fields.bodies().filter(pa.array(doubtful)).to_pylist()
    sound = ~doubtful
    sound[doubtful] = [
        not lacks_flag(*each) for each in zip(bodies, flags[doubtful].tolist(), strict=True)
    ]
    fields.demand(sound, LACKS_FLAG)
