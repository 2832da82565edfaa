"""ConsumeQueue entries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.queue_entry import (
    ENTRY_BYTES,
    PRE_BLANK_SIZE,
    build_entries,
    parse_entries,
    pre_blank,
)
from support.strategies import INT32, INT64

# Compared with files written by RocketMQ; the last entry is that of a delayed message.
GOLDEN = {
    "0000000000000000000000ac000000000027a807": (0, 172, java_hash("TagA")),
    "0000000040000000000000c8ffffffff94dd7d52": (2**30, 200, java_hash("Tag-10")),
    "000000000000115c000000d000000174876ea710": (4444, 208, 1600000010000),
}


@pytest.mark.parametrize(("data", "entry"), GOLDEN.items())
def test_an_entry_has_the_layout_of_rocketmq_on_disk(data, entry):
    columns = [np.array([value]) for value in entry]
    assert build_entries(*columns).tobytes().hex() == data
    assert parse_entries(bytes.fromhex(data)).tolist() == [entry]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_pre_blank_entries_equal_those_of_rocketmq(count):
    assert pre_blank(count).hex() == "00000000000000007fffffff0000000000000000" * count
    assert parse_entries(pre_blank(count)).tolist() == [(0, PRE_BLANK_SIZE, 0)] * count


@given(st.lists(st.tuples(INT64, INT32, INT64)), st.binary(max_size=ENTRY_BYTES - 1))
def test_complete_entries_are_read_back_and_partial_entries_are_ignored(entries, rest):
    columns = zip(*entries, strict=True) if entries else ((), (), ())
    built = build_entries(*(np.array(column, np.int64) for column in columns))
    assert parse_entries(built.tobytes() + rest).tolist() == entries
