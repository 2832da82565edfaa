"""The start and end offsets of reads, with a simulated store."""

import pytest
from pyrocket.errors import OffsetOutOfRangeError, OptionError
from pyspark_pyrocket.options.option import BATCH, STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.data_loss import Losses
from pyspark_pyrocket.source.offset_range import find_span, find_start
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.source.stream_planner import initial_offset, next_offset

NOW = 1_000_000


def read(query=BATCH, **options):
    return ReadOptions.parse(Request({"path": "/s", "subscribe": "t", **options}, "/"), query)


def start(store, query=STREAM, **options):
    asked = read(query, **options)
    return find_start(store, asked, read_bounds(store, asked), Losses(asked.loss)).by_topic()["t"]


def span(store, **options):
    asked = read(BATCH, **options)
    first, last = find_span(store, asked, read_bounds(store, asked), Losses(asked.loss))
    return {queue.queue_id: (offset, last[queue]) for queue, offset in first.items()}


@pytest.fixture
def store(numbers):
    """Queue 0 has messages 5 to 9, one a minute until now; 1 has none; 2 has old ones only."""
    store = numbers(t={0: (5, 10), 1: (7, 7), 2: (0, 2)})
    store.times["t", 0] = [0] * 5 + [NOW - 60_000 * back for back in (4, 3, 2, 1, 0)]
    store.times["t", 2] = [10, 20]
    store.clock = NOW
    return store


def test_a_start_is_earliest_latest_or_json_with_minus_two_and_minus_one(store):
    assert start(store, startingOffsets="earliest") == {0: 5, 1: 7, 2: 0}
    assert start(store, startingOffsets="latest") == {0: 10, 1: 7, 2: 2}
    assert start(store, startingOffsets='{"t":{"0":-2,"1":-1,"2":1}}') == {0: 5, 1: 7, 2: 1}
    with pytest.raises(OptionError, match="-3 is not an offset"):
        start(store, startingOffsets='{"t":{"0":-3,"1":-1,"2":1}}')


@pytest.mark.parametrize("time", [str(NOW - 120_000), "1970-01-01T00:14:40Z", "-2m"])
def test_times_for_all_queues_or_each_are_ms_iso_or_relative(store, time):
    assert start(store, startingTimestamp=time) == {0: 7, 1: 7, 2: 2}
    each = f'{{"t":{{"0":"{time}","1":0,"2":"1970-01-01T00:00:00.020Z"}}}}'
    assert start(store, startingOffsetsByTimestamp=each) == {0: 7, 1: 7, 2: 1}


def test_a_relative_time_is_measured_from_the_start_of_the_query(store):
    assert start(store, startingTimestamp="-1m")[0] == 8
    store.clock += 60_000
    assert start(store, startingTimestamp="-1m")[0] == 9


def test_a_start_at_a_time_is_inclusive_and_an_end_exclusive(store):
    when = str(NOW - 120_000)
    assert span(store, startingTimestamp=when)[0] == (7, 10)
    assert span(store, endingTimestamp=when)[0] == (5, 7)
    assert span(store, startingTimestamp=when, endingTimestamp=when)[0] == (7, 7)


def test_the_strategy_decides_where_a_queue_without_later_messages_starts(store):
    """Queue 2 has no message since that time; queue 1, which is empty, is not affected."""
    since = {"startingTimestamp": "-2m"}
    strategy = "startingOffsetsByTimestampStrategy"
    assert start(store, **since) == {0: 7, 1: 7, 2: 2}
    assert start(store, **since, **{strategy: "latest"}) == {0: 7, 1: 7, 2: 2}
    assert start(store, **since, **{strategy: "earliest"}) == {0: 7, 1: 7, 2: 0}
    with pytest.raises(OptionError, match="queue 2 has no message at or after 880000 ms") as info:
        start(store, **since, **{strategy: "error"})
    assert info.value.code == "NO_MESSAGE_SINCE"


def test_an_idle_queue_does_not_fail_a_start_by_timestamp(store):
    asked = read(STREAM, startingTimestamp="-2m")
    initial = initial_offset(store, asked)
    store.grow("t", 2, 3)
    assert store.step(initial, asked)[1] == [("t", 0, 7, 10), ("t", 2, 2, 3)]


@pytest.mark.parametrize("strategy", ["latest", "earliest", "error"])
def test_an_empty_queue_does_not_restart_from_0_by_timestamp(numbers, strategy):
    """All of its messages were deleted by cleaning: the next message is its first."""
    store = numbers(t={0: (40, 40)})
    wanted = {"startingTimestamp": "-1h", "startingOffsetsByTimestampStrategy": strategy}
    assert start(store, **wanted) == {0: 40}


def test_a_read_starts_at_a_relative_time_or_at_the_last_n_messages(store):
    assert start(store, startingTimestamp="-90s")[0] == 8
    assert start(store, lastN="3") == {0: 7, 1: 7, 2: 0}
    assert span(store, lastN="3", endingTimestamp="-1m") == {0: (5, 8), 1: (7, 7), 2: (0, 2)}


def test_a_batch_ends_at_offsets_or_at_a_time(store):
    assert span(store, endingOffsets='{"t":{"0":6,"1":7,"2":-1}}')[0] == (5, 6)
    assert span(store, endingTimestamp="-3m") == {0: (5, 6), 1: (7, 7), 2: (0, 2)}
    each = '{"t":{"0":"-1m","1":"now","2":20}}'
    assert span(store, endingOffsetsByTimestamp=each) == {0: (5, 8), 1: (7, 7), 2: (0, 1)}


def test_a_time_takes_precedence_over_offsets_as_in_kafka_and_that_is_logged(store, caplog):
    offsets = '{"t":{"0":9,"1":7,"2":0}}'
    times = '{"t":{"0":"-1m","1":0,"2":0}}'
    given = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert start(store, **given)[0] == 8
    assert start(store, **given, startingTimestamp="-3m")[0] == 6
    with caplog.at_level("INFO", "pyspark_pyrocket"):
        span(store, **given, endingTimestamp="now", endingOffsets="latest")
    assert caplog.messages == [
        "startingOffsets is ignored: startingOffsetsByTimestamp is given",
        "endingOffsets is ignored: endingTimestamp is given",
    ]


def test_a_time_without_a_zone_is_logged_as_utc(store, caplog):
    with caplog.at_level("INFO", "pyspark_pyrocket"):
        assert span(store, startingTimestamp="1970-01-01T00:14:40")[0] == (7, 10)
    (note,) = caplog.messages
    assert "has no time zone and is read as UTC" in note


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"startingTimestamp": "soon"}, "is not a time"),
        ({"startingTimestamp": '{"t":{"0":0}}'}, "is not a time"),
        ({"startingOffsetsByTimestamp": "-1h"}, "is not JSON"),
        ({"startingOffsetsByTimestamp": "5"}, "names no topic"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":"soon"}}'}, "queue 0: 'soon' is not a time"),
        ({"endingOffsetsByTimestamp": "{}"}, "names no topic"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "without a time to start at"),
        (
            {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "skip"},
            "latest, earliest or error",
        ),
        ({"lastN": "0"}, "whole number of at least 1"),
        ({"lastN": "5", "startingOffsets": "earliest"}, "Both 'lastN' and 'startingOffsets'"),
        ({"lastN": "5", "startingTimestamp": "-1h"}, "Both 'lastN' and 'startingTimestamp'"),
        ({"startingOffsets": "committed"}, "no consumer group is named.*'group'"),
        ({"endingOffsets": "committed"}, "no consumer group is named.*'group'"),
    ],
)
def test_an_invalid_start_or_end_is_rejected(given, reason):
    with pytest.raises(OptionError, match=reason):
        read(**given)


@pytest.mark.parametrize("option", ["endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option):
    with pytest.raises(OptionError, match=f"{option}' is for batch queries"):
        read(STREAM, **{option: "now"})


def test_times_by_queue_must_have_exactly_the_queues_of_the_read(store):
    with pytest.raises(OptionError, match="does not name the queues 1, 2"):
        start(store, startingOffsetsByTimestamp='{"t":{"0":"-1h"}}')


def test_a_read_starts_at_the_committed_offsets_of_a_group(store):
    store.commits["g", "t"] = {0: 8, 1: 7, 2: 1}
    wanted = {"startingOffsets": "committed", "group": "g"}
    assert start(store, **wanted) == start(store, BATCH, **wanted) == {0: 8, 1: 7, 2: 1}
    assert span(store, endingOffsets="committed", group="g")[0] == (5, 8)


def test_a_query_starts_at_the_offsets_of_the_group_that_follows_it(store):
    store.commits["g", "t"] = {0: 8, 1: 7, 2: 1}
    assert start(store, startingOffsets="committed", commitToGroup="g")[0] == 8


def test_a_query_without_a_checkpoint_can_start_at_the_offsets_of_a_group(store):
    store.commits["g", "t"] = {0: 8, 1: 7, 2: 2}
    asked = read(STREAM, startingOffsets="committed", group="g")
    end = next_offset(store, asked, initial_offset(store, asked))
    assert store.read(initial_offset(store, asked), end) == [("t", 0, 8, 10)]


def test_a_queue_without_a_commit_is_new_to_a_group_that_has_others(store, caplog):
    store.commits["g", "t"] = {0: 8}
    assert start(store, startingOffsets="committed", group="g") == {0: 8, 1: 7, 2: 0}
    assert "no committed offset in topic 't' queues [1, 2]: they start at earliest" in caplog.text


@pytest.mark.parametrize(("query", "first"), [(STREAM, 10), (BATCH, 5)])
def test_a_group_without_commits_starts_at_the_default(store, caplog, query, first):
    assert start(store, query, startingOffsets="committed", group="g")[0] == first
    assert "group g has no committed offset" in caplog.text


def test_a_group_that_is_past_the_end_has_nothing_to_read(store):
    store.commits["g", "t"] = {0: 9, 1: 7, 2: 2}
    wanted = {"startingOffsets": "committed", "group": "g", "endingTimestamp": "-3m"}
    assert span(store, **wanted)[0] == (9, 9)


@pytest.mark.parametrize(
    ("policy", "first"), [("fail", None), ("skip", 5), ("earliest", 5), ("latest", 10)]
)
@pytest.mark.parametrize("by", ["offset", "commit"])
def test_a_start_offset_that_was_deleted_by_cleaning_is_a_loss(store, caplog, policy, first, by):
    store.commits["g", "t"] = {0: 2, 1: 7, 2: 0}
    wanted = {
        "offset": {"startingOffsets": '{"t":{"0":2,"1":7,"2":0}}'},
        "commit": {"startingOffsets": "committed", "group": "g"},
    }[by]
    if first is None:
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 is outside 5 to 10"):
            start(store, **wanted)
        return
    assert start(store, onDataLoss=policy, **wanted)[0] == first
    assert f"queue 0 has lost {first - 2} messages" in caplog.text


@pytest.mark.parametrize("policy", ["fail", "skip", "latest"])
def test_a_start_beyond_the_end_is_an_error_and_not_a_loss(store, policy):
    with pytest.raises(OffsetOutOfRangeError, match="offset 11 is outside 5 to 10"):
        start(store, startingOffsets='{"t":{"0":11,"1":7,"2":0}}', onDataLoss=policy)


def test_an_end_offset_that_was_deleted_by_cleaning_leaves_nothing_to_read(store):
    wanted = {"endingOffsets": '{"t":{"0":2,"1":7,"2":0}}'}
    with pytest.raises(OffsetOutOfRangeError):
        span(store, **wanted)
    assert span(store, onDataLoss="latest", **wanted)[0] == (5, 5)


def test_a_start_beyond_the_end_of_the_read_is_reported_with_its_queues(store):
    wanted = {"startingTimestamp": "-1m", "endingTimestamp": "-3m"}
    with pytest.raises(OptionError, match="topic 't' queue 0: 8 > 6") as info:
        span(store, **wanted)
    assert info.value.code == "START_BEYOND_END"


@pytest.mark.parametrize("offset", [5, 10])
def test_offsets_at_the_bounds_are_accepted(store, offset):
    text = f'{{"t":{{"0":{offset},"1":7,"2":0}}}}'
    assert start(store, startingOffsets=text)[0] == offset


def test_one_time_for_all_queues_selects_a_range_of_store_times():
    asked = read(startingTimestamp="-1h", endingTimestamp="2026-01-01T00:00:00Z").span
    assert asked.time_range(7_200_000) == (3_600_000, 1_767_225_600_000)
    assert read().span.time_range(5) == (0, 2**63 - 1)


@pytest.mark.parametrize(("policy", "first"), [("skip", 5), ("earliest", 5), ("latest", 10)])
def test_a_batch_whose_first_messages_are_lost_may_continue_after_its_end(store, policy, first):
    wanted = {"startingOffsets": '{"t":{"0":1,"1":7,"2":0}}', "onDataLoss": policy}
    ends = '{"t":{"0":7,"1":7,"2":0}}'
    assert span(store, endingOffsets=ends, **wanted)[0] == (first, max(first, 7))
