"""The columns with delays and delivery times: valid values, and rejected rows."""

from datetime import datetime, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import MessageError
from pyrocket.formats.send_columns import check_send_batch, check_send_schema

MOMENT = pa.timestamp("us", "UTC")
UNITS = {"s": 1000, "ms": 1, "us": 1 / 1000, "ns": 1 / 1_000_000}
TICKS_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def batch_of(**columns):
    kinds = {"delayLevel": pa.int32(), "delay": pa.string(), "deliverTimestamp": MOMENT}
    given = {
        name: values if isinstance(values, pa.Array) else pa.array(values, kinds[name])
        for name, values in columns.items()
    }
    count = len(next(iter(given.values())))
    return pa.record_batch({"body": pa.array([b""] * count, pa.binary()), **given})


def refusal(batch):
    with pytest.raises(MessageError) as caught:
        check_send_batch(batch)
    return caught.value.code, caught.value.message


def test_a_level_of_zero_null_and_an_empty_delay_mean_no_delay():
    columns = check_send_batch(batch_of(delayLevel=[0, None, 3], delay=["", None, None]))
    assert columns.delay_level.to_pylist() == [None, None, 3]
    assert columns.delay.to_pylist() == [None, None, None]
    assert columns.deliver_at is None


def test_delays_are_converted_to_milliseconds():
    columns = check_send_batch(batch_of(delay=["10m", "2h30m", "0s", "10m"]))
    assert columns.delay.to_pylist() == [600_000, 9_000_000, 0, 600_000]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_timestamp_is_the_same_moment_in_every_unit_and_time_zone(unit, zone):
    moment = 1_700_000_000
    ticks = pa.array([moment * TICKS_PER_S[unit], None], pa.int64())
    batch = batch_of(deliverTimestamp=ticks.cast(pa.timestamp(unit, zone)))
    check_send_schema(batch.schema)
    assert check_send_batch(batch).deliver_at.to_pylist() == [moment * 1000, None]


@given(st.sampled_from(list(UNITS)), st.integers(0, 2**62))
def test_a_timestamp_is_rounded_up_to_milliseconds(unit, ticks):
    column = pa.array([ticks], pa.timestamp(unit))
    (ms,) = check_send_batch(batch_of(deliverTimestamp=column)).deliver_at.to_pylist()
    exact = ticks * 10**9 // TICKS_PER_S[unit]
    if unit == "s":
        assert ms == min(ticks * 1000, 2**53 * 1000)
    else:
        assert ms == -(-exact // 10**6)


@pytest.mark.parametrize("unit", UNITS)
def test_extreme_times_do_not_overflow(unit):
    column = pa.array([-(2**63), -1, 2**63 - 1], pa.int64()).cast(pa.timestamp(unit))
    before, just, after = check_send_batch(batch_of(deliverTimestamp=column)).deliver_at.to_pylist()
    assert before == just == 0
    assert after > datetime(2200, 1, 1, tzinfo=timezone.utc).timestamp() * 1000


@pytest.mark.parametrize("text", ["10", "soon", "10 m", "-1s", "1.5h"])
def test_the_error_for_an_invalid_delay_has_its_row(text):
    code, message = refusal(batch_of(delay=["1s", None, "", text, text]))
    assert code == "MESSAGE_ILLEGAL"
    assert message.startswith(f"row 3 has the delay {text!r};")


def test_the_error_for_a_negative_level_has_its_row():
    code, message = refusal(batch_of(delayLevel=[0, 1, -1]))
    assert (code, message) == (
        "MESSAGE_ILLEGAL",
        "row 2 has the delay level -1; levels start at 1.",
    )


TWO = [
    {"delayLevel": [1, 0, 1], "delay": [None, "1s", "1s"]},
    {"delayLevel": [1, 0, 1], "deliverTimestamp": [None, 1, 1]},
    {"delay": ["1s", "", "1s"], "deliverTimestamp": [None, 1, 1]},
    {"delayLevel": [1, 0, 1], "delay": [None, "1s", None], "deliverTimestamp": [None, None, 1]},
]


@pytest.mark.parametrize("columns", TWO, ids=["-".join(columns) for columns in TWO])
def test_a_row_may_have_only_one_delivery_time(columns):
    code, message = refusal(batch_of(**columns))
    assert code == "DELAY_TWICE"
    assert message.startswith("row 2 has more than one of ")
    check_send_batch(batch_of(**columns).slice(0, 2))
