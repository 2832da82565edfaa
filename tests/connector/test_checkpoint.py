"""What a query's checkpoint keeps."""

import json
import random

import pytest
from pyrocket.errors import DataLossError
from pyspark_pyrocket.planning.checkpoint import StreamOffset


def offset(**changes):
    values = {
        "store": "uuid-1",
        "epoch": 3,
        "broker": "broker-a",
        "offsets": {"t": {0: 23, 10: 1, 2: 5}, "a": {0: 0}},
        "topic_ids": {"t": "id-t", "a": ""},
    }
    return StreamOffset(**{**values, **changes})


def test_the_text_is_readable_and_sorted():
    assert json.dumps(offset(first={"t": {10: 0}}).to_json()) == (
        '{"epoch": 3, "from": {"t": {"broker-a": {"10": 0}}}, '
        '"offsets": {"a": {"broker-a": {"0": 0}}, "t": {"broker-a": {"0": 23, "2": 5, "10": 1}}}, '
        '"store": "uuid-1", "topics": {"a": "", "t": "id-t"}, "version": 1}'
    )


def test_equal_offsets_have_equal_text_in_whatever_order_they_were_found():
    queues = list(range(32))
    random.Random(1).shuffle(queues)
    one = offset(offsets={"t": dict.fromkeys(queues, 1)})
    other = offset(offsets={"t": dict.fromkeys(sorted(queues), 1)})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


@pytest.mark.parametrize("changes", [{}, {"initial": True}, {"first": {"t": {0: 1}}}])
def test_an_offset_survives_spark_writing_and_reading_it(changes):
    read = StreamOffset.from_json(json.loads(json.dumps(offset(**changes).to_json())))
    assert read == offset(**changes)
    assert json.dumps(read.to_json()) == json.dumps(offset(**changes).to_json())


def test_numbers_are_plain_integers():
    numpy = pytest.importorskip("numpy")
    text = json.dumps(offset(offsets={"t": {0: numpy.int64(4)}}).to_json())
    assert '"0": 4' in text


@pytest.mark.parametrize(
    "broken",
    [
        {"version": 1},
        {**offset().to_json(), "offsets": 5},
        {**offset().to_json(), "offsets": {"t": {"a": {"x": 1}}}},
        {**offset().to_json(), "offsets": {"t": {"a": {"0": 1}, "b": {"0": 1}}}},
    ],
)
def test_a_damaged_checkpoint_is_named(broken):
    with pytest.raises(DataLossError) as info:
        StreamOffset.from_json(broken)
    assert info.value.code == "CHECKPOINT_DAMAGED"


@pytest.mark.parametrize("version", [None, 2, "1"])
def test_a_checkpoint_of_another_version_is_refused(version):
    with pytest.raises(DataLossError) as info:
        StreamOffset.from_json({**offset().to_json(), "version": version})
    assert info.value.code == "CHECKPOINT_VERSION"


def test_an_end_offsets_own_start_wins_over_the_one_that_spark_passes():
    start = offset(offsets={"t": {0: 99, 1: 5}})
    end = offset(first={"t": {0: 7}})
    assert end.begin("t", 0, start) == 7
    assert end.begin("t", 1, start) == 5
    assert end.begin("t", 2, start) is None
