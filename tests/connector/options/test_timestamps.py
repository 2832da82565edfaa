"""Parsing of times in options."""

import pytest
from pyrocket.errors import OptionError
from pyspark_pyrocket.options.positions import parse_timestamp

NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z
HOUR = 3_600_000


def at(text, now=NOON):
    return parse_timestamp("Option 'startingTimestamp'", text).at(now)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1767268800000", NOON),
        (1_767_268_800_000, NOON),
        ("0", 0),
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T12:00:00.250z", NOON + 250),
        ("2026-01-01T14:00:00+02:00", NOON),
        ("2026-01-01 12:00:00", NOON),
        ("2026-01-01", NOON - 12 * HOUR),
        (" 2026-01-01T12:00 ", NOON),
        ("2026-01-01t12Z", NOON),
        ("2026-01-01T12:00:00.5Z", NOON + 500),
        ("2026-01-01T12:00:00,25Z", NOON + 250),
        ("2026-01-01T12:00:00.123000000Z", NOON + 123),
        ("2026-01-01T14:00+0200", NOON),
        ("2026-01-01T14:00+02", NOON),
        ("2026-01-01 08:30:00.0-03:30", NOON),
        ("20260101T120000Z", NOON),
        ("20260101T140000.75+0200", NOON + 750),
        ("1969-12-31T23:59:59.9985Z", -1),
        ("-1h", NOON - HOUR),
        ("-15m", NOON - HOUR // 4),
        ("-2h30m", NOON - 5 * HOUR // 2),
        ("- 1D", NOON - 24 * HOUR),
        ("now", NOON),
    ],
)
def test_a_time_is_epoch_ms_iso_8601_or_relative_to_now(text, ms):
    assert at(text) == ms


def test_a_fraction_of_a_millisecond_is_rounded_up():
    assert at("2026-01-01T12:00:00.000001Z") == NOON + 1
    assert at("2026-01-01T12:00:00.000000001Z") == NOON + 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "1h", "+1h", "-", "-1", "-1w", "2026-13-01", "12:00", "1.5"),
        *("2026-1-1", "2026-01-01T12:0000", "2026-0101", "2026-01-01T12:00:00.Z", "2026-01-01T"),
        *("2026-02-30T00:00Z", "2026-01-01T12:00+25:00", "0000-01-01", "2026-01-01T12:00z+01:00"),
        *("2026-01-01+02:00", "١٩٩٩-01-01", "2026-W01-4"),
        *("1767268800.0", "9" * 19, True, None, 1.5, [], -1),
    ],
)
def test_invalid_times_are_rejected(text):
    with pytest.raises(OptionError, match=r"is not a time.*-15m"):
        at(text)


def test_a_time_without_a_zone_is_utc_with_a_warning():
    assert "read as UTC" in parse_timestamp("Option 'x'", "2026-01-01T12:00").note
    assert not parse_timestamp("Option 'x'", "2026-01-01T12:00Z").note


def test_a_small_number_of_milliseconds_gets_a_warning_about_seconds():
    note = parse_timestamp("Option 'x'", "1767268800").note
    assert "1970-01-21; were seconds meant" in note
