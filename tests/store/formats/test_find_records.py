"""Finding records by their sizes, and by the physical offset in their header."""

from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.record import encode_record, find_record, follow

BASE = 8192


def records(bodies, base=BASE):
    data = b""
    for number, body in enumerate(bodies):
        data += encode_record(
            topic="t",
            queue_id=0,
            queue_offset=number,
            physical_offset=base + len(data),
            body=body,
            properties=b"",
            born_timestamp=1,
            store_timestamp=2,
        )
    return data


BODIES = st.lists(st.binary(max_size=300), min_size=1, max_size=8)


@given(BODIES, st.integers(0, 400))
def test_follow_returns_exactly_the_complete_records(bodies, cut):
    whole = records(bodies)
    data = whole[: max(0, len(whole) - cut)]
    starts, end = follow(memoryview(data), 0)
    expected, position = [], 0
    for body in bodies:
        size = len(records([body]))
        if position + size > len(data):
            break
        expected.append(position)
        position += size
    assert (starts, end) == (expected, position)


@given(BODIES, st.integers(0, 7), st.binary(max_size=100))
def test_follow_stops_at_bytes_that_are_not_a_record(bodies, zeros, garbage):
    data = records(bodies)
    behind = bytes(8 + zeros) + garbage
    starts, end = follow(memoryview(data + behind), 0)
    assert (len(starts), end) == (len(bodies), len(data))


@given(st.binary(max_size=200), BODIES)
def test_next_record_is_found_after_any_bytes(garbage, bodies):
    data = garbage + records(bodies, BASE + len(garbage))
    assert find_record(data, BASE) == len(garbage)


def test_a_record_inside_a_body_is_ignored():
    inner = records([b"inner"], base=0)
    data = records([b"x", b".." + inner + b"..", b"y"])
    starts, _ = follow(memoryview(data), 0)
    assert find_record(data[1:], BASE + 1) == starts[1] - 1
    assert find_record(data[starts[1] + 1 :], BASE + starts[1] + 1) == starts[2] - starts[1] - 1


def test_no_record_is_found_in_other_bytes():
    assert find_record(b"", 0) == -1
    assert find_record(bytes(100), 0) == -1
    assert find_record(records([b"x"])[:20], BASE) == -1
