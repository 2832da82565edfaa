"""The timestamp at which a consumer starts."""

import doctest
import time
from datetime import datetime, timedelta, timezone

import pytest
from pyrocket.client import consume_from
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.consume_from import ConsumeFrom, consume_timestamp
from pyrocket.errors import InvalidInputError


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("20210701080000", "2021-07-01T06:00:00+00:00"),
        ("20211231235959", "2021-12-31T22:59:59+00:00"),
        ("20211031023000", "2021-10-31T01:30:00+00:00"),  # occurs twice
        ("20210328023000", "2021-03-28T01:30:00+00:00"),  # is skipped
    ],
)
def test_a_timestamp_string_is_in_local_time(berlin, text, utc):
    assert consume_timestamp(text, 0) == datetime.fromisoformat(utc).timestamp() * 1000


def test_a_datetime_is_a_timestamp(berlin):
    assert consume_timestamp(datetime.fromisoformat("1970-01-01T02:00"), 0) == 3_600_000
    aware = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert consume_timestamp(aware.replace(microsecond=5000), 0) == 5


def test_the_default_timestamp_is_half_an_hour_ago_in_full_seconds():
    assert consume_timestamp(None, 1_800_000 + 5999) == 5000


@pytest.mark.parametrize(
    "given",
    [
        *("", "2021", "2021-07-01 08:00", "20211301000000", "202107010800000", " 2021070108000"),
        *(
            "00000101000000",
            "00010101000000",
            "2021070108000\u0663",
            20210701080000,
            b"20210701080000",
        ),
    ],
)
def test_an_invalid_timestamp_is_rejected(given):
    with pytest.raises(InvalidInputError, match="consume_timestamp is") as raised:
        consume_timestamp(given, 0)
    assert raised.value.code == "CONSUMER_CONFIG"


def test_examples_in_docstrings_are_correct():
    assert doctest.testmod(consume_from).failed == 0


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("CONSUME_FROM_LAST_OFFSET", ConsumeFrom.LAST),
        ("CONSUME_FROM_FIRST_OFFSET", ConsumeFrom.FIRST),
        ("CONSUME_FROM_TIMESTAMP", ConsumeFrom.TIMESTAMP),
    ],
)
def test_rocketmqs_names_of_the_start_are_accepted(name, wanted):
    assert ConsumerConfig(group="g", consume_from=name).consume_from is wanted
    assert consume_timestamp("-90s", now_ms=100_000) == 10_000
