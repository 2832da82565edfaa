"""Which queue a message is sent to."""

import doctest
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.client import selection
from pyrocket.client.selection import (
    EXPLORE_EVERY,
    WINDOW,
    FaultTable,
    LeastLatency,
    RoundRobin,
    by_hash,
    by_random,
    choose_queue,
    in_rooms,
    unavailable_ms,
)
from pyrocket.errors import InvalidInputError
from pyrocket.values.message import Message, MessageQueue

MESSAGE = Message(topic="orders", body=b"")
QUEUES = [MessageQueue("orders", broker, number) for broker in "abc" for number in range(2)]
STARTS = st.integers(-(1 << 31), (1 << 31) - 1)


def brokers(chosen):
    return {queue.broker for queue in chosen}


def choices(count=12, **options):
    position = RoundRobin(0)
    return [choose_queue(QUEUES, position, **options) for _ in range(count)]


# As in RocketMQ, a round is incomplete when the position starts again at 0, after 2^31 sends.
@given(start=st.integers(0, (1 << 31) - 100), rounds=st.integers(1, 5))
def test_round_robin_sends_equally_many_messages_to_each_queue(start, rounds):
    position = RoundRobin(start)
    chosen = Counter(choose_queue(QUEUES, position) for _ in range(rounds * len(QUEUES)))
    assert chosen == dict.fromkeys(QUEUES, rounds)


def test_round_robin_continues_after_the_largest_position():
    position = RoundRobin(0x7FFFFFFF)
    assert [position.next(QUEUES) for _ in range(2)] == QUEUES[:2]


def test_a_restart_moves_the_position():
    position = RoundRobin(0)
    position.restart(3)
    assert position.next(QUEUES) == QUEUES[4]


def test_the_last_failed_broker_is_avoided():
    assert brokers(choices(last_broker="a")) == {"b", "c"}


def test_the_last_failed_broker_is_chosen_if_it_is_the_only_one():
    assert choose_queue(QUEUES[:2], RoundRobin(0), last_broker="a").broker == "a"


def test_an_unavailable_broker_is_avoided_until_its_time_has_passed():
    faults = FaultTable()
    faults.record("a", 600, 1000)
    assert brokers(choices(faults=faults, now_ms=2999)) == {"b", "c"}
    assert brokers(choices(faults=faults, now_ms=3000)) == {"a", "b", "c"}


def test_a_reachable_broker_is_chosen_if_none_is_available():
    faults = FaultTable()
    for broker in "abc":
        faults.record(broker, 1, 0, failed=True, reachable=broker == "b")
    assert brokers(choices(faults=faults)) == {"b"}
    assert brokers(choices(faults=faults, last_broker="b")) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "choose",
    [
        lambda: choose_queue([], RoundRobin(0)),
        lambda: choose_queue([], RoundRobin(0), faults=FaultTable()),
        lambda: by_hash([], MESSAGE, "key"),
        lambda: by_random(Random(1))([], MESSAGE, None),
        lambda: LeastLatency(0).choose([]),
    ],
)
def test_a_topic_without_queues_is_rejected(choose):
    with pytest.raises(InvalidInputError, match="no queues") as raised:
        choose()
    assert raised.value.code == "NO_QUEUES"


def test_a_failed_send_makes_a_broker_unavailable_for_ten_seconds():
    faults = FaultTable()
    faults.record("a", 1, 0, failed=True)
    assert not faults.is_available("a", 9999)
    assert faults.is_available("a", 10_000)
    assert faults.is_reachable("a")


def test_a_fast_send_does_not_make_a_broker_available_earlier():
    faults = FaultTable()
    faults.record("a", 20_000, 0, reachable=False)
    faults.record("a", 1, 1)
    faults.record("a", 600, 2)
    assert not faults.is_available("a", 29_999)
    assert faults.is_reachable("a")


@given(latency=st.integers(0, 10**6), more=st.integers(0, 10**6))
def test_a_slower_send_never_shortens_the_time_of_avoidance(latency, more):
    assert unavailable_ms(latency) <= unavailable_ms(latency + more) <= 30_000


@given(argument=st.text() | st.integers(-(1 << 63), (1 << 63) - 1), count=st.integers(1, 6))
def test_equal_arguments_select_the_same_queue(argument, count):
    chosen = by_hash(QUEUES[:count], MESSAGE, argument)
    assert chosen in QUEUES[:count]
    assert by_hash(QUEUES[:count], Message(topic="orders", body=b"other"), argument) == chosen


@pytest.mark.parametrize(
    ("argument", "at"), [(-5, 5), (-(1 << 31), 2), (1 << 31, 2), (-(1 << 31) - 1, 2)]
)
def test_integers_have_the_hashes_of_javas_integer_or_long(argument, at):
    queues = [MessageQueue("orders", "a", queue_id) for queue_id in range(6)]
    assert by_hash(queues, MESSAGE, argument) == queues[at]


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        *((value, "WRONG_TYPE") for value in (None, True, b"a", 1.5)),
        *((value, "KEY_OUT_OF_RANGE") for value in (1 << 63, -(1 << 63) - 1)),
    ],
)
def test_an_argument_without_a_java_hash_is_rejected(argument, code):
    with pytest.raises(InvalidInputError, match="argument is") as raised:
        by_hash(QUEUES, MESSAGE, argument)
    assert raised.value.code == code


def test_the_random_selector_selects_every_queue():
    select = by_random(Random(1))
    assert {select(QUEUES, MESSAGE, None) for _ in range(200)} == set(QUEUES)


def test_queues_in_the_given_rooms_are_preferred():
    queues = [MessageQueue("orders", f"{room}@a", 0) for room in ("east", "west", "north")]
    select = in_rooms({"west", "north"}, by_hash)
    assert {select(queues, MESSAGE, number) for number in range(9)} == {*queues[1:]}
    assert in_rooms({"south"}, by_hash)(queues, MESSAGE, 0) == queues[0]


def simulated(latencies, sends, start=0):
    """Return the chosen queues if each queue has a constant latency."""
    chooser, chosen = LeastLatency(start), []
    for _ in range(sends):
        chosen.append(chooser.choose(QUEUES))
        chooser.record(chosen[-1], latencies[chosen[-1]])
    return chosen


@given(st.permutations(range(1, len(QUEUES) + 1)), STARTS)
def test_the_fastest_queue_receives_all_sends_except_one_in_sixteen(order, start):
    latencies = dict(zip(QUEUES, order, strict=True))
    chosen = simulated(latencies, 2 * len(QUEUES) + 160, start)[2 * len(QUEUES) :]
    fastest = min(QUEUES, key=latencies.__getitem__)
    assert 160 - chosen.count(fastest) <= 160 // EXPLORE_EVERY


@given(st.permutations(range(1, len(QUEUES) + 1)), STARTS)
def test_every_queue_is_measured_again(order, start):
    chosen = simulated(dict(zip(QUEUES, order, strict=True)), 600, start)
    # Where the position passes zero, RocketMQ's round robin turns around.
    assert set(chosen[-2 * EXPLORE_EVERY * len(QUEUES) :]) == set(QUEUES)


def test_queues_with_equal_latency_take_turns():
    chosen = Counter(simulated(dict.fromkeys(QUEUES, 5), 16 * 60))
    assert max(chosen.values()) - min(chosen.values()) <= 1


def test_only_the_last_sends_to_a_queue_are_compared():
    chooser = LeastLatency(0)
    chooser.record(QUEUES[0], 10_000)
    chooser.record(QUEUES[1], 5)
    for _ in range(WINDOW):
        chooser.record(QUEUES[0], 1)
    assert chooser.choose(QUEUES[:2]) == QUEUES[0]


def test_the_least_latency_choice_avoids_the_last_failed_broker():
    chooser = LeastLatency(0)
    for queue in QUEUES:
        chooser.record(queue, 1 if queue.broker == "a" else 9)
    chosen = [chooser.choose(QUEUES, last_broker="a") for _ in range(40)]
    assert brokers(chosen) == {"b", "c"}
    assert chooser.choose(QUEUES[:2], last_broker="a").broker == "a"


def test_examples_in_docstrings_are_correct():
    assert doctest.testmod(selection).failed == 0
