"""Parsing of durations and delay levels; ambiguous strings are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.base.config import (
    DELAY_LEVELS,
    MAX_DELAY_LEVELS,
    StoreConfig,
    parse_delay_levels,
    parse_duration,
)
from pyrocket.disk import shared_state
from pyrocket.errors import OptionError

MEANT = {
    "10m": 600_000,
    "2h30m": 9_000_000,
    "1d": 86_400_000,
    "90s": 90_000,
    "500ms": 500,
    "1s500ms": 1500,
    "1d2h3m4s5ms": 93_784_005,
    "0s": 0,
}


@pytest.mark.parametrize(("text", "milliseconds"), MEANT.items(), ids=list(MEANT))
def test_a_duration_is_the_sum_of_its_parts(text, milliseconds):
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "10", "m", "-1s", "1.5h", "10 m", "30m2h", "1s1s", "1H", "1w", "\u0661s", "9" * 11 + "s"],
)
def test_an_invalid_duration_is_parsed_as_none(text):
    assert parse_duration(text) is None


@given(*[st.integers(0, 10**10 - 1)] * 5)
def test_no_duration_overflows_an_int64(d, h, m, s, ms):
    assert 0 <= parse_duration(f"{d}d{h}h{m}m{s}s{ms}ms") < 2**62


def test_the_default_levels_are_those_of_rocketmq():
    seconds = [1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]
    assert parse_delay_levels(DELAY_LEVELS) == tuple(1000 * second for second in seconds)
    assert StoreConfig().delay_levels_ms == parse_delay_levels(DELAY_LEVELS)


@pytest.mark.parametrize(
    "text", ["", " ", "1", "1s,5s", "1s 500ms", "1s -5s", "1S", " ".join(["1s"] * 65)]
)
def test_invalid_levels_are_rejected(text):
    with pytest.raises(OptionError) as caught:
        StoreConfig(delay_levels=text)
    assert caught.value.code == "DELAY_LEVELS"


def test_every_level_has_a_cursor():
    assert MAX_DELAY_LEVELS == shared_state.MAX_DELAY_LEVELS
    assert StoreConfig(delay_levels=" ".join(["1d"] * 64)).delay_levels_ms == (86_400_000,) * 64


def test_a_negative_maximum_delay_is_rejected():
    with pytest.raises(OptionError, match="timer_max_delay_ms"):
        StoreConfig(timer_max_delay_ms=-1)
