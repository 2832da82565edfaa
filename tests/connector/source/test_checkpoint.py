"""The offsets in a query's checkpoint."""

import json
import random
from dataclasses import replace

import pytest
from pyrocket import LogMark, SourceIdentity
from pyrocket.errors import DataLossError
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset
from support.offsets import at, offsets

IDENTITY = SourceIdentity(store="uuid-1", epoch=3, mark=LogMark(4096, 1_700_000_000_000, 7))


def offset(**changes):
    values = {
        "brokers": {"broker-a": IDENTITY},
        "offsets": offsets({"t": {0: 23, 10: 1, 2: 5}, "a": {0: 0}}),
        "topic_ids": {"t": {"broker-a": "id-t"}, "a": {"broker-a": ""}},
    }
    return StreamOffset(**{**values, **changes})


V1 = {
    "epoch": 3,
    "from": {"t": {"broker-a": {"10": 0}}},
    "lost": {"t": {"broker-a": {"0": 2}}},
    "offsets": {"a": {"broker-a": {"0": 0}}, "t": {"broker-a": {"0": 23, "2": 5, "10": 1}}},
    "store": "uuid-1",
    "topics": {"a": "", "t": "id-t"},
    "version": 1,
}


def test_version_1_is_read_as_an_offset_without_a_mark():
    read = StreamOffset.from_json(V1)
    expected = offset(first=offsets({"t": {10: 0}}), lost=offsets({"t": {0: 2}}))
    assert read == replace(expected, brokers={"broker-a": replace(IDENTITY, mark=None)})
    assert read.to_json()["version"] == 2


def test_a_topic_that_the_query_waits_for_has_no_queues():
    waiting = offset(offsets=offsets(), waiting=("t",), topic_ids={})
    assert waiting.to_json()["offsets"] == {"t": {"broker-a": {}}}
    assert StreamOffset.from_json(waiting.to_json()) == waiting


@pytest.mark.parametrize(("kept", "waiting"), [({}, ()), ({"t": {"broker-a": {}}}, ("t",))])
def test_version_1_may_have_no_queues(kept, waiting):
    bare = StreamOffset.from_json({**V1, "offsets": kept, "from": {}, "lost": {}})
    assert (bare.offsets, bare.waiting) == ({}, waiting)


def test_the_text_is_readable_and_sorted():
    assert json.dumps(offset(first=offsets({"t": {10: 0}})).to_json()) == (
        '{"brokers": {"broker-a": {"epoch": 3, "mark": {"headerCrc": 7, "logOffset": 4096, '
        '"storeTimestamp": 1700000000000}, "store": "uuid-1"}}, '
        '"from": {"t": {"broker-a": {"10": 0}}}, '
        '"offsets": {"a": {"broker-a": {"0": 0}}, "t": {"broker-a": {"0": 23, "2": 5, "10": 1}}}, '
        '"topics": {"a": {"broker-a": ""}, "t": {"broker-a": "id-t"}}, "version": 2}'
    )


def test_equal_offsets_have_equal_text_in_any_order():
    queues = list(range(32))
    random.Random(1).shuffle(queues)
    one = offset(offsets=offsets({"t": dict.fromkeys(queues, 1)}))
    other = offset(offsets=offsets({"t": dict.fromkeys(sorted(queues), 1)}))
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


@pytest.mark.parametrize("changes", [{}, {"initial": True}, {"first": offsets({"t": {0: 1}})}])
def test_an_offset_survives_spark_writing_and_reading_it(changes):
    read = StreamOffset.from_json(json.loads(json.dumps(offset(**changes).to_json())))
    assert read == offset(**changes)
    assert json.dumps(read.to_json()) == json.dumps(offset(**changes).to_json())


def test_numbers_are_plain_integers():
    numpy = pytest.importorskip("numpy")
    text = json.dumps(offset(offsets=offsets({"t": {0: numpy.int64(4)}})).to_json())
    assert '"0": 4' in text


@pytest.mark.parametrize(
    "broken",
    [
        {"version": 1},
        {"version": 2},
        {**V1, "offsets": {"t": {"a": {"0": 1}, "b": {"0": 1}}}},
        {**V1, "lost": {"t": {"b": {"0": 1}}}},
        {**offset().to_json(), "brokers": {}},
        {**offset().to_json(), "brokers": 5},
        {**offset().to_json(), "brokers": {"broker-a": {"store": "", "epoch": 0, "mark": {}}}},
        {**offset().to_json(), "topics": {"t": "id-t"}},
        {**offset().to_json(), "offsets": 5},
        {**offset().to_json(), "offsets": {"t": {"a": {"x": 1}}}},
        {**offset().to_json(), "offsets": {"t": {"a": {"0": 1}, "b": {"0": 1}}}},
    ],
)
def test_a_corrupt_checkpoint_is_reported(broken):
    with pytest.raises(DataLossError) as info:
        StreamOffset.from_json(broken)
    assert info.value.code == "CHECKPOINT_DAMAGED"


@pytest.mark.parametrize("version", [None, 3, "1"])
def test_a_checkpoint_of_another_version_is_rejected(version):
    with pytest.raises(DataLossError) as info:
        StreamOffset.from_json({**offset().to_json(), "version": version})
    assert info.value.code == "CHECKPOINT_VERSION"


def of_two_brokers(**changes):
    queues = {at("t", 0): 3, at("t", 0, "broker-b"): 5, at("a", 1, "broker-b"): 2}
    ids = {"t": {"broker-a": "id-1", "broker-b": "id-2"}, "a": {"broker-b": "id-3"}}
    brokers = {"broker-a": IDENTITY, "broker-b": SourceIdentity(store="uuid-2", epoch=0)}
    values = {"brokers": brokers, "offsets": Offsets(queues), "topic_ids": ids}
    return offset(**{**values, **changes})


def test_an_offset_of_several_brokers_survives_spark_writing_and_reading_it():
    whole = of_two_brokers(waiting=("u",), first=Offsets({at("a", 1, "broker-b"): 0}))
    text = json.dumps(whole.to_json())
    assert StreamOffset.from_json(json.loads(text)) == whole
    offsets_of_t = '"t": {"broker-a": {"0": 3}, "broker-b": {"0": 5}}'
    assert offsets_of_t in text
    assert '"u": {"broker-a": {}, "broker-b": {}}' in text


def test_a_broker_can_be_left_out_of_an_offset():
    left = of_two_brokers(lost=Offsets({at("a", 1, "broker-b"): 1})).without(["broker-b"])
    assert left == offset(offsets=offsets({"t": {0: 3}}), topic_ids={"t": {"broker-a": "id-1"}})
    assert of_two_brokers().without([]) == of_two_brokers()


def test_the_start_in_an_end_offset_overrides_the_start_that_spark_passes():
    start = offset(offsets=offsets({"t": {0: 99, 1: 5}}))
    end = offset(first=offsets({"t": {0: 7}}))
    assert end.begin(at("t", 0), start) == 7
    assert end.begin(at("t", 1), start) == 5
    assert end.begin(at("t", 2), start) is None
