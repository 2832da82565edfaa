"""How members of a consumer group share queues."""

import doctest
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.client import allocation
from pyrocket.client.allocation import (
    averagely,
    by_circle,
    by_config,
    by_consistent_hash,
    by_machine_room,
    machine_room_nearby,
    sort_members,
    sort_queues,
)
from pyrocket.errors import InvalidInputError
from pyrocket.values.message import MessageQueue
from support.allocations import Case

OF_JAVA = json.loads((Path(__file__).parents[2] / "golden/allocation.json").read_text("utf-8"))
"""Random inputs, and the results of RocketMQ's strategies."""

QUEUES = [MessageQueue("orders", broker, number) for broker in ("a", "b") for number in range(4)]
NEARBY = machine_room_nearby(averagely, lambda queue: queue.broker, lambda member: member[0])
EVERY_QUEUE = [averagely, by_circle, by_consistent_hash(), NEARBY]


@pytest.mark.parametrize("case", OF_JAVA, ids=lambda case: case["strategy"])
def test_allocated_queues_equal_those_of_rocketmq(case):
    answer = case.pop("answer")
    assert Case(**case).answer() == answer


@pytest.mark.parametrize("strategy", EVERY_QUEUE)
@given(count=st.integers(1, 40), members=st.sets(st.text("abcd", min_size=1), min_size=1))
def test_every_queue_has_exactly_one_owner(strategy, count, members):
    queues = [MessageQueue("orders", "abcd"[number % 4], number // 4) for number in range(count)]
    queues, members = sort_queues(queues), sort_members(members)
    owned = [queue for member in members for queue in strategy("g", member, queues, members)]
    assert sort_queues(owned) == queues


@given(count=st.integers(1, 40), members=st.integers(1, 50))
def test_shares_of_members_differ_by_at_most_one_queue(count, members):
    queues = [MessageQueue("orders", "a", number) for number in range(count)]
    ids = sort_members(f"c{number}" for number in range(members))
    for strategy in (averagely, by_circle):
        sizes = [len(strategy("g", member, queues, ids)) for member in ids]
        assert max(sizes) - min(sizes) <= 1


def test_a_member_that_leaves_moves_only_its_own_queues_on_the_hash_ring():
    queues = [MessageQueue("orders", "a", number) for number in range(100)]
    members, allocate = [f"c{number}" for number in range(5)], by_consistent_hash()
    for member in members[1:]:
        before, after = (allocate("g", member, queues, some) for some in (members, members[1:]))
        assert set(before) <= set(after)


def test_queues_in_a_room_without_members_are_shared_by_all_members():
    owned = NEARBY("g", "a1", QUEUES, ["a1", "c1"])
    assert owned == [*QUEUES[:4], *QUEUES[4:6]]


@pytest.mark.parametrize("strategy", [*EVERY_QUEUE, by_machine_room({"a"})])
def test_an_unknown_member_receives_no_queues(strategy):
    assert strategy("g", "unknown", QUEUES, ["a", "b"]) == []


@pytest.mark.parametrize("strategy", [*EVERY_QUEUE, by_machine_room({"a"})])
@pytest.mark.parametrize("given", [("", QUEUES, ["a"]), ("a", [], ["a"]), ("a", QUEUES, [])])
def test_an_empty_argument_is_rejected(strategy, given):
    with pytest.raises(InvalidInputError, match="is empty") as raised:
        strategy("g", *given)
    assert raised.value.code == "ALLOCATION_ILLEGAL"


def test_a_configured_allocation_checks_no_argument():
    assert by_config(QUEUES[:2])("g", "", [], []) == QUEUES[:2]


def test_a_negative_number_of_virtual_nodes_is_rejected():
    with pytest.raises(InvalidInputError, match="virtual_nodes is -1"):
        by_consistent_hash(-1)


@pytest.mark.parametrize("room", [None, ""])
def test_a_missing_room_is_rejected(room):
    strategy = machine_room_nearby(averagely, lambda queue: room, lambda member: "a")
    with pytest.raises(InvalidInputError, match="The machine room of MessageQueue"):
        strategy("g", "a", QUEUES, ["a"])
    strategy = machine_room_nearby(averagely, lambda queue: "a", lambda member: room)
    with pytest.raises(InvalidInputError, match="The machine room of 'a' is"):
        strategy("g", "a", QUEUES, ["a"])


def test_strings_are_sorted_as_in_java():
    assert sort_members(["\uff21", "\U0001f680", "b"]) == ["b", "\U0001f680", "\uff21"]
    rocket, wide = (MessageQueue("t", broker, 0) for broker in ("\U0001f680", "\uff21"))
    assert sort_queues([wide, rocket]) == [rocket, wide]
    assert sort_queues(QUEUES[::-1]) == QUEUES


def test_examples_in_docstrings_are_correct():
    assert doctest.testmod(allocation).failed == 0
