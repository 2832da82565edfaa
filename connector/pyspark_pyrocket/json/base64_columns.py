"""Encodes and decodes whole columns as base64 with one call of the C library. Pure.

If the length of every value is a multiple of 3, the base64 of the concatenated values is the
concatenation of their base64. Other values are first filled with zero bytes to such a length, and
the padding character (`=`) is inserted afterwards.
"""

import binascii
from string import ascii_letters, digits

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pyrocket.arrow_types import bounds_of, bytes_of

_FILLERS = [b"", b"\0", b"\0\0"]
_SIGN, _ZERO = ord("="), ord("A")
_ALPHABET = (ascii_letters + digits + "+/").encode()
_MAX_BYTES = 2**31 - 1

_Int64s = npt.NDArray[np.int64]


def encode_column(column: pa.BinaryArray, max_bytes: int = _MAX_BYTES) -> pa.StringArray:
    """Return the values in base64; null stays null. Raises pa.ArrowCapacityError beyond 2 GiB."""
    plain = column.fill_null(b"")
    lengths = np.diff(bounds_of(plain))
    fillers = -lengths % 3
    ends = np.cumsum((lengths + fillers) // 3 * 4)
    if len(ends) and ends[-1] > max_bytes:
        raise pa.ArrowCapacityError(f"{ends[-1]} bytes of base64 do not fit into one batch")
    added = pa.array(_FILLERS, pa.binary()).take(pa.array(fillers))
    filled = pc.binary_join_element_wise(plain, added, b"")
    encoded = bytearray(binascii.b2a_base64(bytes_of(filled).data, newline=False))
    text = np.frombuffer(encoded, np.uint8)
    for count in (1, 2):
        text[ends[fillers >= count] - count] = _SIGN
    return with_nulls_of(column, _from_parts(pa.string(), ends, encoded))


def decode_column(column: pa.StringArray) -> pa.BinaryArray:
    """Return the decoded bytes; null stays null.

    Raises pa.ArrowInvalid unless all are base64 as in RFC 4648, with its `=` signs.
    """
    texts = column.fill_null("")
    bounds = bounds_of(texts)
    lengths, ends = np.diff(bounds), bounds[1:] - bounds[0]
    data = bytes_of(texts).copy()
    fillers = np.zeros(len(texts), np.int64)
    rows = np.flatnonzero(lengths)
    for count in (1, 2):
        # The last character but one is padding only if the last one is padding, too.
        rows = rows[(fillers[rows] == count - 1) & (data[ends[rows] - count] == _SIGN)]
        fillers[rows] = count
        data[ends[rows] - count] = _ZERO
    text = data.tobytes()
    if (lengths % 4).any() or text.translate(None, _ALPHABET):
        raise pa.ArrowInvalid("not base64")
    values = _from_parts(pa.binary(), ends // 4 * 3, binascii.a2b_base64(text))
    for count in np.unique(fillers[fillers > 0]).tolist():
        values = pc.if_else(pa.array(fillers == count), pc.binary_slice(values, 0, -count), values)
    return with_nulls_of(column, values)


def _from_parts(kind: pa.DataType, ends: _Int64s, data: bytes | bytearray) -> pa.Array:
    """Return the array of consecutive values in `data`, which end at `ends`."""
    bounds = np.concatenate((np.zeros(1, np.int32), ends.astype(np.int32)))
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(ends), buffers)


def with_nulls_of(column: pa.Array, values: pa.Array) -> pa.Array:
    """Return the values, and null where the column is null."""
    if not column.null_count:
        return values
    return pc.if_else(column.is_valid(), values, pa.scalar(None, values.type))
