"""The property columns of many records equal the properties of each single record."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyrocket.formats.properties import (
    KEYS,
    RESERVED_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)
from pyrocket.formats.property_columns import PropertyColumns
from support.strategies import BLOCK_COLUMNS

GOLDEN = b"A\x011\x02B\x01\x02CC\x02D\x01x\x01y\x02"


def columns_of(blocks, before=(), after=()):
    array = pa.array([*before, *blocks, *after], pa.binary())
    return PropertyColumns(array.slice(len(before), len(blocks)))


def maps_of(columns, *, reserved):
    """Return the rows of a map column, including repeated names."""
    rows = columns.as_map(reserved=reserved).to_pylist()
    for row in rows:
        assert len(dict(row)) == len(row), row
    return [dict(row) for row in rows]


def check(blocks, before=(), after=()):
    columns = columns_of(blocks, before, after)
    rows = [decode_properties(block) for block in blocks]
    for name in (TAGS, KEYS, UNIQ_KEY, "é中", "nowhere"):
        assert columns.column(name).to_pylist() == [row.get(name) for row in rows], name
    for reserved in (True, False):
        assert maps_of(columns, reserved=reserved) == [
            {n: v for n, v in row.items() if (n in RESERVED_PROPERTIES) is reserved} for row in rows
        ]


WORDS = st.sampled_from(["", "A", TAGS, KEYS, "é中", "AA"])
VALUES = st.sampled_from([b"", b"1", b"x\x01y", b"\x01", "é".encode(), b"long" * 9])


@st.composite
def blocks_alike(draw):
    """Blocks with the same names in the same order; some entries may be invalid."""
    names = draw(st.lists(WORDS, min_size=1, max_size=4))
    rows = st.lists(VALUES, min_size=len(names), max_size=len(names))
    return [
        b"".join(
            name.encode() + b"\x01" + value + b"\x02"
            for name, value in zip(names, row, strict=True)
        )
        for row in draw(st.lists(rows, min_size=1, max_size=4))
    ]


@given(blocks_alike(), st.lists(st.sampled_from([b"", b"A\x011", b"A\x011\x02"]), max_size=1))
def test_properties_with_the_same_names_in_all_records_equal_those_of_single_records(
    blocks, before
):
    check(blocks, before)
    check([*blocks, *before])


@given(BLOCK_COLUMNS)
@example([])
@example([b"", b""])
@example([GOLDEN, b"", GOLDEN[:-1]])
@example([b"TAGS\x01a", b"TAGS", b"\x01b", b"TAGS\x01c\x02"])
@example([b"A\x011", b"\x02B\x012", b"\x02"])
@example([b"\xff\x01x\x02\xfe\x01y\x02"])
@example([b"TAGS\x01a\x02", b"TAGS\x01a\x02KEYS\x01k\x02", b"KEYS\x01k\x02"])
@example([b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x01c\x02TAGS\x01d\x02"])
def test_the_columns_of_any_blocks_equal_the_properties_of_single_records(blocks):
    check(blocks)


@given(BLOCK_COLUMNS, BLOCK_COLUMNS, BLOCK_COLUMNS)
def test_a_slice_has_only_its_own_rows(before, blocks, after):
    check(blocks, before, after)
