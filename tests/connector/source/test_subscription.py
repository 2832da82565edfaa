"""The topics and queues that a read selects."""

import pytest
from golden.java import CLEAN, GOLDEN
from pyrocket.errors import (
    InvalidInputError,
    OptionError,
    QueueNotFoundError,
    TopicNotFoundError,
)
from pyspark_pyrocket.options.option import STREAM
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.planner import read_bounds
from pyspark_pyrocket.source.stream_planner import initial_offset, next_offset
from pyspark_pyrocket.transport.path import PathSource
from support.offsets import BROKER
from support.stores import Store

ONE = {0: (0, 1)}


def read(query=STREAM, **options):
    return ReadOptions.parse(
        Request({"path": "/s", "startingOffsets": "earliest", **options}, "/"), query
    )


def queues(store, **options):
    bounds = Offsets.starts(read_bounds(store, read(**options)))
    return {topic: sorted(queues) for topic, queues in bounds.by_topic().items()}


def test_topics_are_selected_by_name_by_pattern_or_by_queue(numbers):
    store = numbers(**{"t-1": {0: (0, 3), 1: (0, 2)}, "t-2": {0: (0, 5)}, "u": ONE})
    assert queues(store, subscribe="t-1,u") == {"t-1": [0, 1], "u": [0]}
    assert queues(store, subscribePattern="t-[0-9]") == {"t-1": [0, 1], "t-2": [0]}
    assert queues(store, assign='{"t-1":[1],"u":[0]}') == {"t-1": [1], "u": [0]}
    assert queues(store, topic="u") == {"u": [0]}


@pytest.mark.parametrize("second", ["subscribePattern", "assign", "topic"])
def test_two_ways_to_name_topics_are_rejected(second):
    with pytest.raises(OptionError, match=f"'subscribe' and '{second}'") as info:
        read(subscribe="t", **{second: '{"t":[0]}'})
    assert info.value.code == "OPTION_CONFLICT"


def test_a_pattern_matches_complete_names(numbers):
    store = numbers(flight=ONE, flights=ONE, **{"my-flights": ONE})
    assert queues(store, subscribePattern="flight") == {"flight": [0]}
    assert queues(store, subscribePattern="flight|.*-flights").keys() == {"flight", "my-flights"}


@pytest.mark.parametrize(
    "system",
    [
        "%RETRY%billing",
        "%DLQ%billing",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_pyrocket_sink",
        "TBW102",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "BenchmarkTest",
        "DefaultCluster",
        "broker-a",
    ],
)
def test_rocketmqs_own_topics_are_read_only_by_name(numbers, system):
    store = numbers(**{"t": ONE, system: ONE})
    assert queues(store, subscribePattern=".*") == {"t": [0]}
    assert queues(store, subscribe=system) == {system: [0]}


@pytest.mark.parametrize(
    ("store", "users"),
    [
        (CLEAN, ["TopicTest"]),
        ("java550-clean", ["TopicTest", "batch", "late", "packed", "paid", "work"]),
    ],
)
def test_a_pattern_for_all_topics_matches_only_user_topics_in_a_brokers_store(store, users):
    with Store.open(GOLDEN / store, read_only=True) as broker:
        assert list(queues(PathSource(broker), subscribePattern=".*")) == users


def test_a_cluster_of_another_name_has_its_own_system_topics(numbers):
    store = numbers(t=ONE, east=ONE, east_REPLY_TOPIC=ONE)
    assert queues(store, subscribePattern=".*") == {"t": [0]}


def test_a_topic_that_a_pattern_finds_later_is_read_from_its_first_message(numbers):
    store = numbers(**{"t-1": {0: (0, 3)}})
    asked = read(subscribePattern="t-.*", startingOffsets="latest")
    start, _ = store.step(initial_offset(store, asked), asked)
    store.grow("t-2", 1, 4)
    store.grow("u", 0, 4)
    store.grow("%RETRY%t-3", 0, 4)
    start, seen = store.step(start, asked)
    assert seen == [("t-2", 1, 0, 4)]
    assert start.topic_ids == {"t-1": {BROKER: "id-t-1"}, "t-2": {BROKER: "id-t-2"}}


def test_a_pattern_that_matches_no_topic_fails_with_the_existing_topics(numbers):
    with pytest.raises(TopicNotFoundError, match=r"a name that fully matches.*Topics: flights"):
        queues(numbers(flights=ONE), subscribePattern="flight")


def test_a_pattern_does_not_match_a_topic_without_read_permission(numbers):
    store = numbers(t=ONE, u=ONE)
    store.perms = {"u": 2}
    assert queues(store, subscribePattern=".") == {"t": [0]}
    with pytest.raises(InvalidInputError, match="'u' does not permit reading"):
        queues(store, subscribe="t,u")


def test_revoking_read_permission_of_a_topic_in_use_is_reported(numbers):
    store = numbers(t=ONE, u=ONE)
    asked = read(subscribePattern=".")
    start, _ = store.step(initial_offset(store, asked), asked)
    store.perms = {"u": 2}
    with pytest.raises(InvalidInputError, match="'u' does not permit reading"):
        next_offset(store, asked, start)


@pytest.mark.parametrize("pattern", ["", "(", "*", "[z-a]", "a{999999999999}"])
def test_an_invalid_regular_expression_is_rejected(pattern):
    with pytest.raises(OptionError, match="subscribePattern"):
        read(subscribePattern=pattern)


def test_assigned_queues_do_not_change(numbers):
    store = numbers(t={0: (0, 3), 1: (0, 2)})
    asked = read(assign='{"t":[1]}')
    start, seen = store.step(initial_offset(store, asked), asked)
    assert seen == [("t", 1, 0, 2)]
    store.grow("t", 0, 9)
    store.grow("t", 2, 9)
    assert next_offset(store, asked, start) is None


def test_a_queue_that_is_assigned_later_starts_at_its_first_message(numbers):
    store = numbers(t={0: (0, 3), 1: (0, 2)})
    start, _ = store.step(initial_offset(store, read(assign='{"t":[1]}')), read(assign='{"t":[1]}'))
    assert store.step(start, read(assign='{"t":[0,1]}'))[1] == [("t", 0, 0, 3)]


def test_a_queue_that_does_not_exist_cannot_be_assigned(numbers):
    with pytest.raises(QueueNotFoundError, match=r"'t' has no queue 7.*are 0, 1"):
        queues(numbers(t={0: (0, 3), 1: (0, 2)}), assign='{"t":[0,7]}')


def test_a_restarted_query_cannot_be_assigned_a_queue_that_it_has_not_read_either(numbers):
    store, asked = numbers(t={0: (0, 3), 1: (0, 2)}), read(assign='{"t":[0,1]}')
    start, _ = store.step(initial_offset(store, asked), asked)
    del store.known["t"][1]
    assert next_offset(store, asked, start) is None
    with pytest.raises(QueueNotFoundError, match="'t' has no queue 7"):
        next_offset(store, read(assign='{"t":[0,1,7]}'), start)


@pytest.mark.parametrize(
    "text",
    [
        *("t", "[]", "{}", '{"t":0}', '{"t":[]}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[0,0]}'),
        *('{"t":[true]}', '{"t":[0.5]}', '{"t":{"0":1}}', '{"t":[0],"t":[1]}'),
    ],
)
def test_an_assignment_is_json_with_the_queues_of_each_topic(text):
    with pytest.raises(OptionError, match="assign"):
        read(assign=text)


@pytest.mark.parametrize("mode", [{"subscribe": "flihgts"}, {"assign": '{"flihgts":[0]}'}])
def test_a_typo_in_a_topic_name_fails_with_the_nearest_name(tmp_path, mode):
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("flights")
        with pytest.raises(TopicNotFoundError, match="Did you mean 'flights'"):
            queues(PathSource(store), **mode)


def test_topics_may_have_different_numbers_of_queues(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        for name, count in (("a", 1), ("b", 9)):
            store.topics.create(name, read_queues=count, write_queues=count)
        found = queues(PathSource(store), subscribePattern="a|b")
    assert found == {"a": [0], "b": list(range(9))}


@pytest.mark.parametrize(
    ("option", "example"),
    [
        ("assign", '{"topic":[0,2]}'),
        ("startingOffsets", '{"topic":{"0":23,"1":-2}}'),
        ("startingOffsetsByTimestamp", '{"topic":{"0":"-1h","1":1767225600000}}'),
    ],
)
def test_the_error_about_invalid_json_shows_an_example(option, example):
    topics = {} if option == "assign" else {"subscribe": "topic"}
    with pytest.raises(OptionError, match="is not JSON") as info:
        read(**topics, **{option: "{topic"})
    assert example in info.value.remedy
    read(**topics, **{option: example})
