"""Byte sequences in a buffer ("runs") are compared, copied and gathered."""

from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.arrow_buffers import (
    binary_runs,
    crc32_of_runs,
    gather,
    is_utf8,
    run_offsets,
    runs_equal,
    text_bytes,
    text_runs,
    to_text,
)


@given(st.binary(min_size=1, max_size=20), st.integers(0, 19), st.integers(0, 7))
def test_runs_that_differ_in_one_bit_are_not_equal(word, at, bit):
    other = bytearray(word)
    other[at % len(word)] ^= 1 << bit
    data = b"gap" + word + b"?" + bytes(other) + word
    starts = np.array([3, 4 + len(word), 4 + 2 * len(word)])
    equal = runs_equal(np.frombuffer(data, np.uint8), starts, word)
    assert equal.tolist() == [True, False, True]


def pieces_of(run):
    return st.lists(st.tuples(st.binary(max_size=3), run), max_size=6)


# Arrow stores up to 12 bytes differently: short runs, long runs, and both in one array.
@given(
    pieces_of(st.binary(max_size=5))
    | pieces_of(st.binary(min_size=11, max_size=14))
    | pieces_of(st.binary(min_size=13, max_size=40))
)
def test_runs_are_copied_without_the_gaps(pieces):
    data, bounds = b"", []
    for gap, run in pieces:
        bounds.append((len(data) + len(gap), len(data) + len(gap) + len(run)))
        data += gap + run
    starts, ends = np.array(bounds, np.int64).reshape(-1, 2).T
    runs = binary_runs(pa.py_buffer(data), starts, ends)
    runs.validate(full=True)
    expected = [run for _, run in pieces]
    assert runs.to_pylist() == expected
    sums = crc32_of_runs(pa.py_buffer(data), starts, ends)
    assert sums.tolist() == list(map(crc32, expected))


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=20)), max_size=6))
def test_text_is_copied_without_the_gaps(pieces):
    data, bounds = b"", []
    for gap, run in pieces:
        first = len(data) + len(gap.encode())
        data += (gap + run).encode()
        bounds.append((first, len(data)))
    starts, ends = np.array(bounds, np.int64).reshape(-1, 2).T
    runs = text_runs(pa.py_buffer(data), starts, ends)
    runs.validate(full=True)
    assert (runs.type, runs.to_pylist()) == (pa.string(), [run for _, run in pieces])


@pytest.mark.parametrize(("run", "gap"), [(1024, 120), (1024, 1300), (40, 4000)])
def test_arrow_allocates_exactly_the_bytes_of_long_runs(run, gap):
    rows = 1000
    data = pa.py_buffer(bytes((run + gap) * rows))
    starts = np.arange(rows) * (run + gap) + gap
    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    runs = binary_runs(data, starts, starts + run)
    assert len(runs) == rows
    # Offsets take 8 bytes per row while they are computed; buffers are padded to 64 bytes.
    assert pool.total_bytes_allocated() - before <= rows * (run + 8) + 256


@pytest.mark.parametrize(("first", "last"), [(-1, 20), (0, 41), (30, 2**31)])
def test_long_runs_outside_of_the_buffer_are_an_error(first, last):
    with pytest.raises(IndexError, match="in a buffer of 40 bytes"):
        binary_runs(pa.py_buffer(bytes(40)), np.array([first]), np.array([last]))


@given(st.binary(min_size=8, max_size=40), st.data())
def test_fields_are_gathered_at_any_position(data, draw):
    positions = draw.draw(st.lists(st.integers(0, len(data) - 8)))
    found = gather(np.frombuffer(data, np.uint8), np.array(positions, np.int64), ">i8")
    assert found.tolist() == [
        int.from_bytes(data[at : at + 8], "big", signed=True) for at in positions
    ]


@given(st.lists(st.binary(max_size=6)))
def test_malformed_text_is_replaced_as_python_and_java_do(values):
    text = to_text(pa.array(values, pa.binary()))
    assert text.to_pylist() == [value.decode("utf-8", "replace") for value in values]
    assert all(
        is_utf8(value) == (value.decode("utf-8", "ignore").encode() == value) for value in values
    )


@given(st.lists(st.one_of(st.none(), st.text()), max_size=5), st.integers(0, 2), st.integers(0, 2))
def test_a_slice_returns_only_its_own_bytes(values, before, after):
    array = pa.array(["<"] * before + values + [">>"] * after, pa.string())
    cut = array.slice(before, len(values))
    assert text_bytes(cut).tobytes() == "".join(value or "" for value in values).encode()
    lengths = [len((value or "").encode()) for value in values]
    assert np.diff(run_offsets(cut)).tolist() == lengths
