"""Parsing of offsets in options."""

import pytest
from pyrocket.errors import OptionError
from pyrocket.values.message import QueueOffsets
from pyspark_pyrocket.options.json_values import exactly
from pyspark_pyrocket.options.positions import OffsetChoice
from pyspark_pyrocket.source.offset_range import _number
from support.offsets import by_queue

BOUNDS = by_queue({"t": {0: QueueOffsets(5, 20), 1: QueueOffsets(0, 7)}})


def resolve(text):
    """Return topic → queue id → offset, as a read resolves them before it checks for lost
    messages."""
    choice = OffsetChoice.parse("startingOffsets", text)
    named = dict.fromkeys(BOUNDS, choice.word)
    if choice.queues:
        named = exactly(choice.option, choice.queues, BOUNDS)
    offsets = {queue.queue_id: _number(named[queue], BOUNDS[queue]) for queue in BOUNDS}
    return {"t": offsets}


def test_earliest_and_latest_are_the_bounds_of_each_queue():
    assert resolve("earliest") == {"t": {0: 5, 1: 0}}
    assert resolve(" LATEST ") == {"t": {0: 20, 1: 7}}


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"0":9,"1":"latest"}}',
        '{"t":{"1":-1,"0":9}}',
        '{"t":{"broker-a":{"0":9,"1":"Latest"}}}',
    ],
)
def test_offsets_as_json_may_have_a_broker_level(text):
    assert resolve(text) == {"t": {0: 9, 1: 7}}


def test_minus_two_is_earliest():
    assert resolve('{"t":{"0":-2,"1":"earliest"}}') == {"t": {0: 5, 1: 0}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("first", "earliest, latest, committed"),
        ("{", "is not JSON"),
        ('{"t":{"0":NaN}}', "is not an offset"),
        ("{}", "names no topic"),
        ('{"t":5}', "does not name queues"),
        ('{"t":{"0":-3,"1":0}}', "is not an offset"),
        ('{"t":{"0":"7","1":0}}', "is not an offset"),
        ('{"t":{"0":true,"1":0}}', "is not an offset"),
        ('{"t":{"0":9223372036854775808,"1":0}}', "is not an offset"),
        ('{"t":{"zero":1,"1":0}}', "'zero' is not a queue id"),
        ('{"t":{"00":1,"1":0}}', "'00' is not a queue id"),
        ('{"t":{"0":1,"0":2,"1":0}}', "names 0 twice"),
        ('{"t":{"broker-a":{"0":1},"1":0}}', "is not a queue id"),
    ],
)
def test_malformed_offsets_are_rejected_with_the_reason(text, reason):
    with pytest.raises(OptionError, match=reason):
        resolve(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"t":{"0":9}}', "does not name the queue 1"),
        ('{"t":{"0":9,"1":0,"7":1}}', "names the queue 7, which this query does not read\\."),
        (
            '{"t":{"broker-a":{"0":9,"2":1}}}',
            "names the queue 2, which this query does not read, and does not name the queue 1",
        ),
        (
            '{"u":{"0":9,"1":0}}',
            "names the topic u, which this query does not read, and does not name the topic t",
        ),
        ('{"t":{"broker-b":{"0":9,"1":0}}}', "does not name the broker broker-a"),
    ],
)
def test_offsets_must_name_exactly_the_queues_that_are_read(text, reason):
    with pytest.raises(OptionError, match=reason) as info:
        resolve(text)
    assert "Name exactly" in info.value.remedy


def test_an_offset_outside_the_queue_is_not_an_error_of_parsing():
    """An offset before the range may be a data loss, one after it is an error: see test_places."""
    assert resolve('{"t":{"0":4,"1":0}}')["t"][0] == 4
