"""Runs of bytes inside a buffer as Arrow arrays, in one pass and without touching the gaps."""

import sys
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.formats.checksum import crc32

Ints = npt.NDArray[np.integer[Any]]

_BINARY = pa.binary()
_EVENS = 1 << 15
"""As many indices are kept at least: slices of a scan have fewer rows."""


def gather(data: npt.NDArray[np.uint8], positions: Ints, kind: str) -> npt.NDArray[np.generic]:
    """Return the value of numpy type `kind` at each byte position, aligned or not."""
    dtype = np.dtype(kind)
    every = np.ndarray((max(len(data) - dtype.itemsize + 1, 0),), dtype, data, strides=(1,))
    return every[positions]


def runs_equal(data: npt.NDArray[np.uint8], starts: Ints, word: bytes) -> npt.NDArray[np.bool_]:
    """Return whether each run data[starts[i]:][:len(word)] is `word`; all must lie inside."""
    return begin_with(gather(data, starts, f"V{len(word)}"), word)


def begin_with(runs: npt.NDArray[np.generic], word: bytes) -> npt.NDArray[np.bool_]:
    """Return whether each of the runs, gathered with one length, begins with `word`."""
    equal = np.ones(len(runs), bool)
    if not word:
        return equal
    width = next((width for width in (8, 4, 2) if len(word) >= width), 1)
    # The last step overlaps the one before where the width does not divide the length.
    for step in sorted({*range(0, len(word) - width + 1, width), len(word) - width}):
        # A few integers are compared much faster than all the bytes.
        wanted = int.from_bytes(word[step : step + width], sys.byteorder)
        equal &= part_of(runs, step, f"u{width}") == wanted
    return equal


def part_of(runs: npt.NDArray[np.generic], at: int, kind: str) -> npt.NDArray[np.generic]:
    """Return the value of numpy type `kind` at byte `at` of each run, without a copy."""
    rows = runs.view(np.uint8).reshape(len(runs), runs.itemsize)
    return rows[:, at : at + np.dtype(kind).itemsize].view(kind)[:, 0]


def binary_runs(
    buffer: pa.Buffer, starts: Ints, ends: Ints, kind: pa.DataType = _BINARY
) -> pa.Array:
    """Return the runs [starts[i], ends[i]) of `buffer` as binary or, if known to be text, strings.

    They have to lie inside, ascend and not overlap: Arrow aborts the process on offsets that run
    backwards, so whoever reads them from disk proves that first.

    An array whose elements are the runs and the gaps in turn needs no copy; taking every second
    element copies the runs alone.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], kind)
    bounds = np.empty(2 * count, np.int32)
    bounds[::2], bounds[1::2] = starts, ends
    both = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(bounds), buffer])
    return pc.take(both, _even_numbers(count), boundscheck=False)


def _even_numbers(count: int) -> pa.Int32Array:
    """Return 0, 2, … 2·count-2."""
    most = max(_EVENS, 1 << (count - 1).bit_length())
    return _evens(most).slice(0, count)


@cache
def _evens(count: int) -> pa.Int32Array:
    return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))


def to_text(values: pa.BinaryArray) -> pa.StringArray:
    """Return the values as strings; malformed UTF-8 becomes U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        plain = (value.decode("utf-8", "replace") for value in values.to_pylist())
        return pa.array(plain, pa.string())


def is_utf8(data: bytes) -> bool:
    """Return whether the bytes are well-formed."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_bytes(text: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes behind a string or binary array, those of a slice only."""
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
    runs = map(memoryview(data).__getitem__, map(slice, starts.tolist(), ends.tolist()))
    return np.fromiter(map(crc32, runs), np.int64, len(starts))
