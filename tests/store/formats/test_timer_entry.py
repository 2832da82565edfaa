"""The index entry of a timer: its due time and key, for timers of all senders."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.java_timers import TimerCheck, decode_timer_check, encode_timer_check
from pyrocket.formats.properties import encode_properties
from pyrocket.formats.property_columns import PropertyColumns
from pyrocket.formats.record import encode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.formats.timer_entry import (
    CANCELS,
    ENTRY_BYTES,
    TIMER_ENTRY,
    due_times,
    marks,
    places,
    seal,
    slot_start,
    sound,
    timer_entries,
)

NOW = 1_700_000_000_000


def due(**properties):
    block = encode_properties({name: str(value) for name, value in properties.items()})
    return int(due_times(PropertyColumns(pa.array([block], pa.binary())))[0])


def entries(*messages, born=7):
    """Return the entries of messages with these properties."""
    records = [
        encode_record(
            topic="rmq_sys_wheel_timer",
            queue_id=0,
            queue_offset=number,
            physical_offset=0,
            body=b"body%d" % number,
            properties=encode_properties(properties),
            born_timestamp=born,
            store_timestamp=1,
        )
        for number, properties in enumerate(messages)
    ]
    sizes = np.array([len(record) for record in records])
    starts = np.cumsum(sizes) - sizes
    run = RecordFields(pa.py_buffer(b"".join(records)), 0, starts, sizes)
    return timer_entries(run, np.arange(len(records)))


def test_due_times_of_our_own_timers_are_exact():
    assert due(TIMER_OUT_MS=NOW + 123, TIMER_DELIVER_MS=NOW + 123) == NOW + 123
    assert due(TIMER_OUT_MS=NOW, TIMER_DELIVER_MS=NOW) == NOW


@given(st.integers(1, 10**7))
def test_the_due_time_is_the_requested_time_although_a_broker_rounded_it_down(after):
    wanted = NOW + after
    out = wanted - 1000 if wanted % 1000 == 0 else wanted // 1000 * 1000
    assert due(TIMER_OUT_MS=out, TIMER_DELIVER_MS=wanted) == wanted


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
def test_a_timer_with_a_relative_delay_is_due_when_a_broker_would_deliver_it(name):
    out = {"TIMER_OUT_MS": NOW, "TIMER_DELIVER_MS": NOW + 5}
    assert due(**out, **{name: 30}) == NOW + 1000


def test_a_requested_time_far_from_the_brokers_time_moves_the_due_time_by_at_most_a_second():
    assert due(TIMER_OUT_MS=NOW, TIMER_DELIVER_MS=NOW + 10**9) == NOW + 1000
    assert due(TIMER_OUT_MS=NOW, TIMER_DELIVER_MS=5) == NOW


@pytest.mark.parametrize("text", ["", "soon", "-5", "1" * 19, "1.5"])
def test_a_message_without_a_valid_time_is_due_immediately(text):
    assert due(TIMER_OUT_MS=text) == 1
    assert due() == 1


@given(st.integers(1, 2**50))
def test_a_slot_is_the_second_that_ends_at_or_after_the_due_time(due_ms):
    start = slot_start(due_ms)
    assert start % 1000 == 0
    assert start < due_ms <= start + 1000


def test_a_cancellation_with_or_without_topic_has_the_key_of_the_cancelled_message():
    at = {"TIMER_OUT_MS": str(NOW + 500), "REAL_TOPIC": "t"}
    found = entries(
        {"UNIQ_KEY": "A1", **at},
        {"UNIQ_KEY": "B1", "TIMER_DEL_UNIQKEY": "A1", **at},
        {"UNIQ_KEY": "B2", "TIMER_DEL_UNIQKEY": "t+A1", **at},
        {"UNIQ_KEY": "B3", "TIMER_DEL_UNIQKEY": "u+A1", **at},
        {"UNIQ_KEY": "B4", "TIMER_DEL_UNIQKEY": "A2", **at},
        {"UNIQ_KEY": "B5", "TIMER_DEL_UNIQKEY": "A1", **at, "TIMER_OUT_MS": str(NOW + 1500)},
    )
    same = places(found) == places(found)[0]
    assert same.tolist() == [True, True, True, False, False, False]
    assert found["copies"].tolist() == [0] + [CANCELS] * 5


def test_copies_have_the_key_of_their_message_and_the_number_of_the_copy():
    own = {"UNIQ_KEY": "A", "REAL_TOPIC": "t", "TIMER_OUT_MS": str(NOW)}
    found = entries(own, {**own, "TIMER_ROLL_TIMES": "1"}, {**own, "TIMER_ROLL_TIMES": "12"})
    assert len(set(found["key"].tolist())) == 1
    assert len(set(marks(found).tolist())) == 1
    assert found["copies"].tolist() == [0, 1, 12]


def test_messages_without_an_id_are_distinguished_by_content():
    one, two = entries({"REAL_TOPIC": "t"}, {"REAL_TOPIC": "t"})
    (again,) = entries({"REAL_TOPIC": "t", "TIMER_ROLL_TIMES": "1"})
    (later,) = entries({"REAL_TOPIC": "t"}, born=8)
    assert one["key"] == again["key"]
    assert len({int(one["key"]), int(two["key"]), int(later["key"])}) == 3


@given(st.data())
def test_an_entry_with_a_changed_byte_is_invalid(data):
    entry = np.zeros(1, TIMER_ENTRY)
    for name in ("due", "queue_offset", "physical_offset", "key"):
        entry[name] = data.draw(st.integers(0, 2**50), name)
    raw = bytearray(seal(entry).tobytes())
    assert len(sound(np.frombuffer(bytes(raw), TIMER_ENTRY))) == 1
    at = data.draw(st.integers(0, ENTRY_BYTES - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert len(sound(np.frombuffer(bytes(raw), TIMER_ENTRY))) == 0


@given(st.integers(0, 2**60), st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_timer_check_is_read_as_it_was_written(read_ms, position, offset):
    check = TimerCheck(read_ms, position, offset)
    assert decode_timer_check(encode_timer_check(check)) == check
    assert len(encode_timer_check(check)) == 4096


def test_a_missing_timer_check_is_read_as_zeros():
    assert decode_timer_check(b"") == TimerCheck()
