"""FNV-1a of a column equals FNV-1a of each text."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.hashes import fnv1a_column


def plainly(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def test_known_texts_have_the_hashes_of_the_reference_implementation():
    """From the FNV authors' test suite."""
    texts = pa.array(["", "a", "foobar"])
    known = [0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8]
    assert fnv1a_column(texts).tolist() == known


@given(st.lists(st.text(max_size=12), max_size=30), st.integers(0, 5))
def test_the_hashes_of_a_column_equal_those_of_its_texts(texts, skipped):
    column = pa.array(texts, pa.string()).slice(skipped)
    assert fnv1a_column(column).tolist() == [plainly(text) for text in texts[skipped:]]
