"""Converts runs of bytes in a buffer to Arrow arrays in one pass, without reading the gaps."""

import itertools
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.checksum import crc32

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer[Any]]

_BINARY, _BINARY_VIEW, _TEXT = pa.binary(), pa.binary_view(), pa.string()

_VIEW = np.dtype([("length", "i4"), ("prefix", "i4"), ("buffer", "i4"), ("offset", "i4")])
"""An element of Arrow's binary view: https://arrow.apache.org/docs/format/Columnar.html. The
prefix may be 0, because casts to binary ignore it."""

_INLINE_BYTES = 12
"""Values of up to this many bytes are stored in the view itself."""

_EVENS = 1 << 15
"""The cached array has at least this many indices, more than a slice of a scan has rows."""


def gather(data: npt.NDArray[np.uint8], positions: Ints, kind: str) -> npt.NDArray[np.generic]:
    """Return the values of numpy type `kind` at byte positions, aligned or not."""
    dtype = np.dtype(kind)
    every = np.ndarray((max(len(data) - dtype.itemsize + 1, 0),), dtype, data, strides=(1,))
    return every[positions]


def runs_equal(data: npt.NDArray[np.uint8], starts: Ints, word: bytes) -> npt.NDArray[np.bool_]:
    """Return a mask: whether each run data[starts[i]:][:len(word)] is `word`.

    All runs must be inside `data`.
    """
    return begin_with(gather(data, starts, f"V{len(word)}"), word)


def begin_with(runs: npt.NDArray[np.generic], word: bytes) -> npt.NDArray[np.bool_]:
    """Return a mask: whether each run begins with `word`. All runs have the same length."""
    if not word:
        return np.ones(len(runs), bool)
    width = next((width for width in (8, 4, 2) if len(word) >= width), 1)
    # The last step overlaps the previous one if the width does not divide the length.
    steps = sorted({*range(0, len(word) - width + 1, width), len(word) - width})
    # Comparing a few integers is much faster than comparing all bytes.
    wanted = [int.from_bytes(word[step : step + width], sys.byteorder) for step in steps]
    equal = part_of(runs, steps[0], f"u{width}") == wanted[0]
    for step, part in zip(steps[1:], wanted[1:], strict=True):
        equal &= part_of(runs, step, f"u{width}") == part
    return equal


def part_of(runs: npt.NDArray[np.generic], at: int, kind: str) -> npt.NDArray[np.generic]:
    """Return the value of numpy type `kind` at byte `at` of each run, without a copy."""
    rows = runs.view(np.uint8).reshape(len(runs), runs.itemsize)
    return rows[:, at : at + np.dtype(kind).itemsize].view(kind)[:, 0]


def runs_of(values: Ints) -> list[tuple[int, int]]:
    """Return [first, last) of each run of equal values."""
    if len(values) == 1:
        return [(0, 1)]
    cuts = np.flatnonzero(np.diff(values)) + 1
    bounds = [0, *cuts.tolist(), len(values)] if len(values) else []
    return list(itertools.pairwise(bounds))


def binary_runs(buffer: pa.Buffer, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Return the runs [starts[i], ends[i]) of `buffer` as binary, copied once.

    The runs must be inside the buffer, ascending and not overlapping. Arrow aborts the process if
    offsets decrease, so callers must first check data from disk.

    Long runs are copied by casting a binary view array; Arrow then allocates exactly the bytes that
    the runs need. A view of up to 12 bytes contains the bytes itself, so if one run is that short,
    all runs are copied as in `text_runs`.
    """
    lengths = ends - starts
    if not len(starts) or lengths.min() <= _INLINE_BYTES:
        return _every_second(buffer, starts, ends, _BINARY)
    if starts[0] < 0 or ends[-1] > buffer.size:
        # Arrow would read outside of the buffer.
        raise IndexError(f"runs from {starts[0]} to {ends[-1]} in a buffer of {buffer.size} bytes")
    views = np.zeros(len(starts), _VIEW)
    views["length"], views["offset"] = lengths, starts
    parts = [None, pa.py_buffer(views), buffer]
    return pa.Array.from_buffers(_BINARY_VIEW, len(starts), parts).cast(_BINARY)


def text_runs(buffer: pa.Buffer, starts: Ints, ends: Ints) -> pa.StringArray:
    """Return runs of a buffer of well-formed UTF-8 as strings; see `binary_runs` for the rules.

    For short runs close to each other, this is faster than views.
    """
    return _every_second(buffer, starts, ends, _TEXT)


def _every_second(buffer: pa.Buffer, starts: Ints, ends: Ints, kind: pa.DataType) -> pa.Array:
    """Return the runs as every second element of an array in which runs and gaps alternate.

    This array is created without a copy. Arrow allocates memory for the number of runs times the
    mean length of all elements, and doubles it when that is not enough.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], kind)
    bounds = np.empty(2 * count, np.int32)
    bounds[::2], bounds[1::2] = starts, ends
    both = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(bounds), buffer])
    evens = _evens(max(_EVENS, 1 << (count - 1).bit_length())).slice(0, count)
    return pc.take(both, evens, boundscheck=False)


@cache
def _evens(count: int) -> pa.Int32Array:
    """Return 0, 2, … 2·count-2."""
    return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))


def to_text(values: pa.BinaryArray) -> pa.StringArray:
    """Return the values as strings; malformed UTF-8 becomes U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        plain = (value.decode("utf-8", "replace") for value in values.to_pylist())
        return pa.array(plain, pa.string())


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are well-formed UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_bytes(text: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the data bytes of a string or binary array, without those outside of a slice."""
    data = text.buffers()[2]
    if len(text) == 0 or data is None:
        return np.zeros(0, np.uint8)
    bounds = run_offsets(text)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def run_offsets(values: pa.Array) -> npt.NDArray[np.int32]:
    """Return the n + 1 offsets of a string or binary array into its data."""
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)


def crc32_of_runs(data: pa.Buffer, starts: Ints, ends: Ints) -> npt.NDArray[np.int64]:
    """Return the CRC-32 of each run [starts[i], ends[i]) of `data`, without copying the runs."""
    return np.fromiter(map(crc32, _views(data, starts, ends)), np.int64, len(starts))


def _views(data: pa.Buffer, starts: Ints, ends: Ints) -> Iterator[memoryview]:
    return map(memoryview(data).__getitem__, map(slice, starts.tolist(), ends.tolist()))


def views_of_values(values: pa.Array) -> Iterator[memoryview]:
    """Yield each value of a string or binary array without a copy; b"" for a null."""
    bounds = run_offsets(values)
    return _views(values.buffers()[2] or pa.py_buffer(b""), bounds[:-1], bounds[1:])


def crc32_of_values(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the CRC-32 of each value of a string or binary array; that of b"" for a null."""
    return np.fromiter(map(crc32, views_of_values(values)), np.int64, len(values))
