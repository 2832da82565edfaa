"""The keys extracted at sending equal those extracted from the log."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.hashes import java_hash, java_hash_column
from pyrocket.formats.index_file import key_hash
from pyrocket.formats.message_keys import keys_of_batch, keys_of_message

WORDS = st.lists(st.sampled_from(["a", "Aa", "BB", "", "ключ", "😀", "x" * 300]), max_size=4)


def one_by_one(topic, ids, words):
    for row, (unique_id, its) in enumerate(zip(ids, words, strict=True)):
        yield from ((row, key_hash(topic, word)) for word in (unique_id, *its) if word)


@given(
    words=st.lists(st.one_of(st.none(), WORDS), max_size=20),
    topic=st.sampled_from(["T", "%RETRY%g", "t" * 127]),
    before=st.integers(0, 3),
)
def test_the_keys_of_a_batch_equal_those_of_its_messages_in_order(words, topic, before):
    ids = [f"ID{row}😀" if row % 3 else f"ID{row}" for row in range(len(words))]
    joined = pa.array(
        ["other word"] * before + [None if its is None else " ".join(its) for its in words],
        pa.string(),
    )
    found = keys_of_batch(topic, pa.array(ids, pa.string()), joined.slice(before))
    plain = [its or [] for its in words]
    expected = list(one_by_one(topic, ids, plain))
    assert list(zip(found.rows.tolist(), found.hashes.tolist(), strict=True)) == expected
    single = [keys_of_message(topic, *one) for one in zip(ids, plain, strict=True)]
    assert [each for one in single for each in one.hashes.tolist()] == [
        each for _, each in expected
    ]
    assert all(not one.rows.any() for one in single)


def test_a_batch_without_keys_has_only_its_ids():
    found = keys_of_batch("T", pa.array(["a", "b"]), None)
    assert found.rows.tolist() == [0, 1]
    assert found.hashes.tolist() == [key_hash("T", "a"), key_hash("T", "b")]


def test_the_bytes_of_a_null_are_not_a_key():
    offsets, data = np.array([0, 1, 3, 4], np.int32), b"axyb"
    hiding = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\5"), pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    found = keys_of_batch("T", pa.array(["i", "j", "k"]), hiding)
    assert found.rows.tolist() == [0, 0, 1, 2, 2]


@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=40),
    front=st.text(max_size=10),
    chunk=st.sampled_from([1, 7, 64, 1 << 16]),
)
def test_the_hash_with_a_prefix_equals_that_of_the_joined_texts(texts, front, chunk):
    found = java_hash_column(pa.array(texts, pa.string()), java_hash(front), chunk)
    assert found.tolist() == [java_hash(front + (text or "")) for text in texts]


def test_a_text_longer_than_the_table_of_powers_is_hashed():
    long = "ab" * 50_000
    value = 0
    for letter in long:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    value -= (value >> 31) << 32
    assert java_hash(long) == value
    assert java_hash_column(pa.array(["x", long, "y"])).tolist() == [120, value, 121]
