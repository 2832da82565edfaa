"""String.hashCode, one string and a column at a time."""

import numpy as np
import pyarrow as pa
import pytest
from golden.values import HASHES, QUEUES_OF_FOUR
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.hashes import (
    java_hash,
    java_hash_column,
    queue_for_key,
    queues_for_keys,
)
from support.strategies import TEXT

TEXTS = st.lists(st.one_of(st.none(), TEXT, st.text(st.characters(min_codepoint=0x10000))))


@pytest.mark.parametrize(("text", "expected"), HASHES.items())
def test_the_hash_equals_that_of_the_jvm(text, expected):
    assert java_hash(text) == expected
    assert java_hash_column(pa.array([text])).tolist() == [expected]


@pytest.mark.parametrize(("key", "queue"), QUEUES_OF_FOUR.items())
def test_key_selects_the_same_queue_as_in_rocketmq(key, queue):
    assert queue_for_key(key, 4) == queue
    assert queues_for_keys(pa.array([key]), 4).tolist() == [queue]


@pytest.mark.parametrize("queues", [1, 3, 4, 1024])
def test_a_key_whose_hash_is_the_minimum_integer_has_a_queue(queues):
    expected = 2**31 % queues
    assert queue_for_key("polygenelubricants", queues) == expected
    assert queues_for_keys(pa.array(["polygenelubricants"]), queues).tolist() == [expected]


def test_a_surrogate_pair_counts_as_two_units():
    assert java_hash("🚀") == (31 * 0xD83D + 0xDE80)
    assert java_hash_column(pa.array(["🚀", "a🚀b"])).tolist() == [
        java_hash("🚀"),
        java_hash("a🚀b"),
    ]


@given(TEXTS, st.integers(0, 3), st.integers(0, 3))
def test_the_hashes_of_any_slice_of_a_column_equal_those_of_its_texts(texts, before, after):
    column = pa.array(["héad"] * before + texts + ["tail🚀"] * after, pa.string())
    hashes = java_hash_column(column.slice(before, len(texts)))
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [java_hash(text or "") for text in texts]


@given(st.lists(TEXT), st.integers(1, 2000))
def test_every_key_gets_a_queue_that_exists(keys, queues):
    chosen = queues_for_keys(pa.array(keys, pa.string()), queues)
    assert chosen.tolist() == [queue_for_key(key, queues) for key in keys]
    assert all(0 <= queue < queues for queue in chosen)


def test_the_bytes_of_a_null_are_not_hashed():
    offsets, data = np.array([0, 4, 8], np.int32), b"TagATagB"
    column = pa.StringArray.from_buffers(
        2, pa.py_buffer(offsets), pa.py_buffer(data), pa.py_buffer(b"\x02")
    )
    assert column.to_pylist() == [None, "TagB"]
    assert java_hash_column(column).tolist() == [0, HASHES["TagB"]]
