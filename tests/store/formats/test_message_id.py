"""The offset id of a message."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.message_keys import hex_column, offset_message_id, parse_offset_message_id

LOOPBACK_V6 = bytes(15) + b"\x01"
GOLDEN = [
    (bytes((127, 0, 0, 1)), 10911, 0, "7F00000100002A9F0000000000000000"),
    (bytes((127, 0, 0, 1)), 10911, 228, "7F00000100002A9F00000000000000E4"),
    (bytes((192, 168, 1, 5)), 10911, 4096, "C0A8010500002A9F0000000000001000"),
    (LOOPBACK_V6, 10911, 2**30, "0000000000000000000000000000000100002A9F0000000040000000"),
]


@pytest.mark.parametrize(("host", "port", "offset", "expected"), GOLDEN)
def test_the_id_equals_that_of_rocketmq(host, port, offset, expected):
    assert offset_message_id(host, port, offset) == expected
    raw = np.frombuffer(bytes.fromhex(expected), np.uint8)
    assert hex_column(raw[None, :]).to_pylist() == [expected]
    assert parse_offset_message_id(expected) == (host, port, offset)
    assert parse_offset_message_id(expected.lower()) == (host, port, offset)


@pytest.mark.parametrize("text", ["", "7F", "7F000001" * 5, "G" * 32, " 7" * 16, "\uff17" * 32])
def test_invalid_id_is_none(text):
    assert parse_offset_message_id(text) is None


@given(
    st.integers(1, 28).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), min_size=1))
)
def test_a_column_of_bytes_is_converted_to_upper_case_hex(rows):
    matrix = np.array([list(row) for row in rows], np.uint8)
    column = hex_column(matrix)
    column.validate(full=True)
    assert column.to_pylist() == [row.hex().upper() for row in rows]


def test_no_rows_give_no_ids():
    assert hex_column(np.zeros((0, 16), np.uint8)).to_pylist() == []
