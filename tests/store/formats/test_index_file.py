"""Index files: format, hashes and names, compared with RocketMQ."""

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.index_file import (
    Geometry,
    IndexHeader,
    build_items,
    is_table_name,
    key_hash,
    key_hashes,
    name_after,
    seconds_after,
    table_name,
)

DEFAULT = Geometry(5_000_000, 20_000_000)


def test_a_file_of_the_default_geometry_has_the_layout_of_rocketmq():
    assert DEFAULT.file_bytes == 420_000_040
    assert DEFAULT.item_position(1) == 20_000_060
    assert DEFAULT.slot_position(1_080_517) == 4_322_108


# Compared with the classes of 4.9.8; the second `topic#key` hashes to the minimum integer.
@pytest.mark.parametrize(
    ("key", "expected"), [("ORDER1", 1_211_080_517), ("polygenelubricants", 26_908_034)]
)
def test_keys_hash_as_in_java(key, expected):
    assert key_hash("TopicTest", key) == expected
    assert key_hashes(pa.array(["TopicTest"]), pa.array([key])).tolist() == [expected]


def text_with_least_hash(prefix):
    """Return a key for which `prefix#key` hashes to the minimum integer."""
    powers = [31**place for place in range(6, -1, -1)]
    rest = (2**31 - java_hash(f"{prefix}#") * 31**7 - 65 * sum(powers)) % 2**32
    return "".join(chr(65 + rest // power % 31) for power in powers)


def test_the_minimum_integer_which_has_no_absolute_value_becomes_the_hash_0():
    key = text_with_least_hash("t")
    assert java_hash(f"t#{key}") == -(2**31)
    assert key_hash("t", key) == 0
    assert key_hashes(pa.array(["t", "t"]), pa.array([key, "a"])).tolist()[0] == 0


@given(st.lists(st.tuples(st.text("tT%é", min_size=1), st.text(max_size=40)), max_size=20))
def test_the_hashes_of_a_column_equal_those_of_its_values(pairs):
    topics, keys = (pa.array([pair[at] for pair in pairs], pa.string()) for at in (0, 1))
    assert key_hashes(topics, keys).tolist() == [key_hash(*pair) for pair in pairs]


def test_colliding_keys_have_the_same_hash():
    assert key_hash("t", "Aa") == key_hash("t", "BB")


def test_an_item_has_the_layout_of_rocketmq_on_disk():
    columns = [np.array([value]) for value in (1_211_080_517, 172, 1, 0)]
    assert build_items(*columns).tobytes().hex() == "482f9f4500000000000000ac0000000100000000"


@given(st.tuples(*[st.integers(0, 2**63 - 1)] * 4, *[st.integers(0, 2**31 - 1)] * 2))
def test_a_header_is_read_as_it_was_written(fields):
    header = IndexHeader(*fields)
    assert len(header.encode()) == 40
    expected = fields[5] or 1
    assert IndexHeader.decode(header.encode()) == IndexHeader(*fields[:5], expected)


@pytest.mark.parametrize(
    ("begin", "stored", "seconds"),
    [
        (0, 5000, 0),
        (-1, 5000, 0),
        (1000, 1999, 0),
        (1000, 2000, 1),
        (5000, 4999, 0),
        (5000, 0, 0),
        (1, 2**42 + 2**41, 2**31 - 1),
    ],
)
def test_times_are_stored_as_seconds_since_the_begin_time_of_the_file(begin, stored, seconds):
    assert seconds_after(begin, np.array([stored])).tolist() == [seconds]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai"])
def test_a_file_is_named_after_the_local_time(zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        hour = {"UTC": "01", "Asia/Shanghai": "09"}[zone]
        assert table_name(1_795_225_518_383) == f"20261121{hour}4518383"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_of_files_created_in_the_same_millisecond_are_in_ascending_order():
    name = table_name(1_795_225_518_999)
    assert name < name_after(name)
    assert is_table_name(name_after(name))
    assert not is_table_name("2026112101451838")
    assert not is_table_name("20261121014518383.tmp")


@given(st.integers(1, 2**24))
def test_a_geometry_of_four_items_per_slot_is_guessed_from_the_file_length(slots):
    geometry = Geometry(slots, 4 * slots)
    assert Geometry.guess(geometry.file_bytes) == geometry
    assert Geometry.guess(geometry.file_bytes + 1) is None


@pytest.mark.parametrize("length", [0, 40, 39])
def test_no_geometry_is_guessed_for_an_invalid_length(length):
    assert Geometry.guess(length) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_time_gives_a_valid_name(created_ms):
    assert is_table_name(table_name(created_ms))
    assert is_table_name(name_after(table_name(created_ms)))
