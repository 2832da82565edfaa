"""The offsets of micro-batches, with a simulated store."""

import sys

import pytest
from pyrocket.errors import InvalidInputError, TopicNotFoundError
from pyspark_pyrocket.options.positions import LATEST, OffsetChoice
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.admission import take_rows
from pyspark_pyrocket.source.stream_planner import (
    initial_offset,
    next_offset,
)
from support.offsets import BROKER, at, offsets

LATEST_FIRST = Span(OffsetChoice("startingOffsets", LATEST))


def at_most(rows):
    return lambda start, end: take_rows(start, end, rows)


def options(*topics, wait=False, **changes):
    return ReadOptions(path="/s", subscription=SubscribedTopics(topics or ("t",), wait), **changes)


def test_a_new_query_starts_at_the_configured_offsets(numbers):
    store = numbers(t={0: (5, 20), 1: (0, 7)})
    assert initial_offset(store, options()).offsets.by_topic() == {"t": {0: 5, 1: 0}}
    latest = initial_offset(store, options(span=LATEST_FIRST))
    assert latest.offsets.by_topic() == {"t": {0: 20, 1: 7}}


def test_without_new_messages_there_is_no_next_offset(numbers):
    store = numbers(t={0: (0, 3)})
    start = initial_offset(store, options(span=LATEST_FIRST))
    assert next_offset(store, options(), start) is None


def test_an_empty_first_batch_is_replayed_as_empty(numbers):
    store = numbers(t={0: (0, 10)})
    latest = options(span=LATEST_FIRST)
    end = initial_offset(store, latest)  # The end offset of a first batch without data.
    store.grow("t", 0, 15)
    assert store.read(initial_offset(store, latest), end) == []
    assert store.step(end, latest)[1] == [("t", 0, 10, 15)]


def test_a_new_queue_without_messages_starts_no_batch(numbers):
    store = numbers(t={0: (0, 3)})
    start, _ = store.step(initial_offset(store, options()))
    store.grow("t", 1, 0)
    assert next_offset(store, options(), start) is None


def test_a_topic_created_later_is_read_from_its_first_message(numbers):
    store = numbers(t={0: (0, 3)})
    asked = options("t", "u", wait=True, span=LATEST_FIRST)
    start, _ = store.step(initial_offset(store, asked), asked)
    store.grow("u", 0, 2)
    start, seen = store.step(start, asked)
    assert seen == [("u", 0, 0, 2)]
    assert start.topic_ids == {"t": {BROKER: "id-t"}, "u": {BROKER: "id-u"}}


def test_no_matching_topic_is_an_error(numbers):
    with pytest.raises(TopicNotFoundError, match="'u'"):
        initial_offset(numbers(t={0: (0, 1)}), options("u", "v"))
    asked = ReadOptions(path="/s", subscription=SubscribedTopics(pattern="u.*"))
    with pytest.raises(TopicNotFoundError, match=r"'u\.\*'"):
        initial_offset(numbers(t={0: (0, 1)}), asked)


@pytest.mark.parametrize("span", [LATEST_FIRST, Span()])
def test_topics_that_a_query_waits_for_have_no_queues_until_they_exist(numbers, span):
    store, asked = numbers(), options("t", "u", wait=True, span=span)
    initial = initial_offset(store, asked)
    assert (initial.offsets, initial.waiting) == ({}, ("t", "u"))
    assert next_offset(store, asked, initial) is None
    store.grow("u", 0, 0)
    assert next_offset(store, asked, initial) is None, "there is nothing to read yet"
    store.grow("u", 0, maximum=9, minimum=4)
    store.grow("u", 1, 2)
    start, seen = store.step(initial, asked)
    assert seen == [("u", 0, 4, 9), ("u", 1, 0, 2)]
    assert (start.offsets.by_topic(), start.waiting) == ({"u": {0: 9, 1: 2}}, ("t",))
    assert start.first.by_topic() == {"u": {0: 4, 1: 0}}
    store.grow("u", 0, maximum=9, minimum=6)
    assert store.read(initial_offset(store, asked), start) == seen, "a replay has the same offsets"
    store.grow("t", 0, 3)
    end, seen = store.step(start, asked)
    assert (seen, end.first) == ([("t", 0, 0, 3)], offsets({"t": {0: 0}}))


def test_a_pattern_may_wait_for_its_first_topic(numbers):
    store = numbers(t={0: (0, 1)})
    asked = ReadOptions(path="/s", subscription=SubscribedTopics(wait=True, pattern="u.*"))
    initial = initial_offset(store, asked)
    assert initial.offsets.by_topic() == {}
    store.grow("u1", 0, 3)
    assert store.step(initial, asked)[1] == [("u1", 0, 0, 3)]


def test_a_topic_that_never_existed_is_not_reported_as_deleted(numbers):
    """The query was started again without missingTopic=wait."""
    store, waiting = numbers(t={0: (0, 3)}), options("t", "u", wait=True)
    start, _ = store.step(initial_offset(store, waiting), waiting)
    assert (start.offsets.by_topic(), start.waiting) == ({"t": {0: 3}}, ("u",))
    with pytest.raises(TopicNotFoundError, match="'u'"):
        next_offset(store, options("t", "u"), start)


def test_a_topic_without_read_permission_is_reported(numbers):
    store = numbers(t={0: (0, 1)})
    store.perm = 2
    with pytest.raises(InvalidInputError) as info:
        initial_offset(store, options())
    assert info.value.code == "TOPIC_NOT_READABLE"


def test_a_removed_queue_keeps_its_offset(numbers):
    store = numbers(t={0: (0, 3), 1: (0, 4)})
    start, _ = store.step(initial_offset(store, options()))
    del store.known["t"][1]
    store.grow("t", 0, 5)
    start, seen = store.step(start)
    assert seen == [("t", 0, 3, 5)]
    assert start.offsets.by_topic() == {"t": {0: 5, 1: 4}}
    store.grow("t", 1, 6)
    assert store.step(start)[1] == [("t", 1, 4, 6)]


def test_a_deleted_topic_that_the_query_waits_for_keeps_its_offsets(numbers):
    store = numbers(t={0: (0, 3)}, u={0: (0, 2)})
    asked = options("t", "u", wait=True)
    initial = initial_offset(store, asked)
    del store.known["u"]
    end = next_offset(store, asked, initial)
    assert end.offsets.by_topic() == {"t": {0: 3}, "u": {0: 0}}
    assert store.read(initial, end) == [("t", 0, 0, 3)]


def test_a_topic_no_longer_subscribed_keeps_its_offsets(numbers):
    store = numbers(t={0: (0, 3)}, u={0: (0, 2)})
    start, _ = store.step(initial_offset(store, options("t", "u")), options("t", "u"))
    store.grow("t", 0, 9)
    store.grow("u", 0, 9)
    start, seen = store.step(start, options("t"))
    assert seen == [("t", 0, 3, 9)]
    assert start.offsets[at("u", 0)] == 2


def test_a_target_is_reached_and_never_exceeded(numbers):
    store = numbers(t={0: (0, 5)})
    target = offsets({"t": {0: 5}})
    store.grow("t", 0, 50)
    store.grow("t", 1, 7)
    start, seen = store.step(initial_offset(store, options()), target=target, take=at_most(3))
    assert [end - begin for *_, begin, end in seen] == [3]
    start, seen = store.step(start, target=target, take=at_most(3))
    assert [end - begin for *_, begin, end in seen] == [2]
    assert next_offset(store, options(), start, target=target, take=at_most(3)) is None


def test_a_target_below_the_start_does_not_move_the_query_back(numbers):
    store = numbers(t={0: (0, 9)})
    start = initial_offset(store, options(span=LATEST_FIRST))
    assert next_offset(store, options(), start, target=offsets({"t": {0: 4}})) is None


def test_the_number_of_topic_listings_does_not_depend_on_the_number_of_topics(numbers):
    """Listing them once per topic delayed the start of a query on a thousand topics by 0.2 s."""
    topics = [f"t{n:03}" for n in range(100)]
    store = numbers(**{topic: {0: (0, 3), 1: (0, 3)} for topic in topics})
    start, asked = initial_offset(store, options(*topics)), options(*topics)
    for plan in (lambda: initial_offset(store, asked), lambda: next_offset(store, asked, start)):
        calls = []
        sys.setprofile(lambda frame, event, _, to=calls: to.append((event, frame.f_code.co_name)))
        plan()
        sys.setprofile(None)
        assert calls.count(("call", "topics_of")) < 20
