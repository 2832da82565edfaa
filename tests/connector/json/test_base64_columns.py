"""Base64 of columns: each value is encoded as the standard library encodes it."""

from base64 import b64decode, b64encode

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_pyrocket.json.base64_columns import decode_column, encode_column

VALUES = st.lists(st.none() | st.binary(max_size=12), max_size=12)
TEXTS = st.text(st.sampled_from("AZaz09+/=é \n"), max_size=9)


def encoded(value):
    return None if value is None else b64encode(value).decode()


@given(VALUES, st.integers(0, 3))
def test_values_of_a_column_are_encoded_like_single_values(values, skip):
    column = pa.array([*[b"x"] * skip, *values], pa.binary()).slice(skip)
    texts = encode_column(column)
    assert texts.to_pylist() == [encoded(value) for value in values]
    texts.validate(full=True)


@given(VALUES, st.integers(0, 3))
def test_encoded_values_are_decoded_unchanged(values, skip):
    texts = pa.array([*["eHg="] * skip, *map(encoded, values)], pa.string()).slice(skip)
    column = decode_column(texts)
    assert column.to_pylist() == values
    column.validate(full=True)


@given(TEXTS)
def test_one_invalid_value_among_valid_base64_is_rejected(text):
    texts = pa.array(["eHg=", text, "eA==", None])
    try:
        plain = b64decode(text, validate=True)
        if len(text) != (len(plain) + 2) // 3 * 4:
            raise ValueError  # The standard library accepts superfluous `=` signs.
    except ValueError:
        with pytest.raises(pa.ArrowInvalid, match="not base64"):
            decode_column(texts)
    else:
        assert decode_column(texts).to_pylist() == [b"xx", plain, b"x", None]


def test_base64_beyond_the_limit_of_a_batch_is_rejected_before_allocating():
    assert encode_column(pa.array([b"abc"]), 7).to_pylist() == ["YWJj"]
    with pytest.raises(pa.ArrowCapacityError, match="8 bytes"):
        encode_column(pa.array([b"abcd"]), 7)
    with pytest.raises(pa.ArrowCapacityError, match="12 bytes"):
        encode_column(pa.array([b"abc", b"abcd"]), 11)
