"""The options for micro-batches and tasks: their values and their errors."""

import pytest
from pyrocket.errors import OptionError
from pyspark_pyrocket.options.batching import DEFAULT_BYTES, DEFAULT_DELAY_MS, Admission, Splitting
from pyspark_pyrocket.options.option import BATCH, READ, STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request

LIFTED = ["0", " NONE ", "Unlimited"]


def read(query=STREAM, **options):
    return ReadOptions.parse(Request({"path": "/s", "subscribe": "t", **options}, "/"), query)


def admission(**options):
    return read(**options).admission


def test_a_stream_without_limits_reads_256_mib_at_a_time():
    assert admission() == Admission(max_bytes=DEFAULT_BYTES, by_default=True)
    assert DEFAULT_BYTES == 256 * 1024 * 1024
    assert "256 MiB" in admission().describe()
    assert "maxBytesPerTrigger=none" in admission().describe()


@pytest.mark.parametrize(
    ("given", "shown"),
    [("1g", "1 GiB"), ("3m", "3 MiB"), ("1k", "1 KiB"), ("1025", "1025 bytes")],
)
def test_a_limit_in_bytes_is_described_exactly(given, shown):
    assert f"at most {shown}" in admission(maxBytesPerTrigger=given).describe()


def test_limits_of_micro_batches_do_not_apply_to_batches():
    assert read(BATCH).admission == Admission()


@pytest.mark.parametrize("word", LIFTED)
@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_limit_can_be_removed(option, word):
    assert admission(**{option: word}) == Admission()


def test_a_limit_of_messages_replaces_the_default():
    assert admission(maxOffsetsPerTrigger="5") == Admission(max_rows=5)
    assert admission(maxBytesPerTrigger="64m") == Admission(max_bytes=64 << 20)
    both = admission(maxOffsetsPerTrigger="5", maxBytesPerTrigger="1k")
    assert both == Admission(max_rows=5, max_bytes=1024)
    one = admission(maxOffsetsPerTrigger="none", maxBytesPerTrigger="1k")
    assert one == Admission(max_bytes=1024)


def test_a_micro_batch_can_wait_for_messages():
    assert admission(minOffsetsPerTrigger="7").min_rows == 7
    assert admission(minOffsetsPerTrigger="7").max_delay_ms == DEFAULT_DELAY_MS == 900_000
    assert admission(minOffsetsPerTrigger="7").max_bytes == DEFAULT_BYTES
    assert admission(minOffsetsPerTrigger="7", maxTriggerDelay="30s").max_delay_ms == 30_000


@pytest.mark.parametrize("value", ["-1", "1.5", "99999999999999999999"])
@pytest.mark.parametrize(
    "option",
    ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"],
)
def test_limits_must_be_positive_whole_numbers(option, value):
    with pytest.raises(OptionError, match=rf"'{option}' is '{value}'. Write a whole number"):
        read(**{option: value})


@pytest.mark.parametrize(
    "option", ["minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition"]
)
def test_a_minimum_or_limit_of_zero_is_rejected(option):
    with pytest.raises(OptionError, match=option):
        read(**{option: "0"})


@pytest.mark.parametrize("value", ["-1", "much", "1.5g"])
@pytest.mark.parametrize("option", ["maxBytesPerTrigger", "maxBytesPerPartition"])
def test_a_number_of_bytes_must_be_a_valid_size(option, value):
    with pytest.raises(OptionError, match=rf"'{option}' is '{value}'. Write bytes"):
        read(**{option: value})


@pytest.mark.parametrize("value", ["15", "-1s"])
def test_a_trigger_delay_must_be_a_duration(value):
    with pytest.raises(OptionError, match=r"maxTriggerDelay.*15m"):
        read(minOffsetsPerTrigger="7", maxTriggerDelay=value)


def test_a_trigger_delay_without_a_minimum_is_rejected():
    with pytest.raises(OptionError, match="minOffsetsPerTrigger") as info:
        read(maxTriggerDelay="1m")
    assert info.value.code == "OPTION_MISSING"


def test_a_minimum_above_the_maximum_is_rejected():
    with pytest.raises(OptionError, match="is 5") as info:
        read(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    assert info.value.code == "OPTION_CONFLICT"
    assert admission(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").min_rows == 5


@pytest.mark.parametrize(
    "option",
    ["maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxOffsetsPerTrigger"],
)
def test_limits_of_micro_batches_are_rejected_in_batches(option):
    with pytest.raises(OptionError, match="stream"):
        read(BATCH, **{option: "1"})


@pytest.mark.parametrize("query", [BATCH, STREAM, READ])
def test_batches_and_streams_have_the_options_for_tasks(query):
    asked = read(query, minPartitions="8", maxRecordsPerPartition="9", maxBytesPerPartition="1m")
    assert asked.splitting == Splitting(min_tasks=8, max_rows=9, max_bytes=1 << 20)
    assert read(query).splitting == Splitting()
    assert not read(query, coalesceQueues="false").splitting.coalesce
