"""Parked polls are woken only by the events that they wait for."""

import sys

from pyrocket.broker.polls import Holds, ParkedPoll


def parked(*holds):
    table = Holds()
    for hold in holds:
        table.park(hold)
    return table


def test_a_message_wakes_the_polls_on_its_queue_and_on_all_queues_of_its_topic():
    every, first = ParkedPoll("g", "t", None, 1), ParkedPoll("h", "t", 0, 2)
    other_queue, other_topic = ParkedPoll("g", "t", 1, 3), ParkedPoll("g", "u", None, 4)
    table = parked(every, first, other_queue, other_topic)
    assert {*table.arrived("t", 0)} == {every, first}
    assert len(table) == 2
    assert table.arrived("t", 0) == []
    assert table.arrived("t", 1) == [other_queue]


def test_a_retry_wakes_the_polls_of_its_group():
    mine, other = ParkedPoll("g", "t", 3, 1), ParkedPoll("h", "t", 3, 2)
    table = parked(mine, other)
    assert table.arrived("%RETRY%g", 0) == [mine]
    assert len(table) == 1


def test_a_message_visible_again_wakes_the_polls_of_its_group_on_its_topic():
    mine, other = ParkedPoll("g", "t", 3, 1), ParkedPoll("g", "u", None, 2)
    table = parked(mine, other)
    assert table.visible("g", "t") == [mine]
    assert len(table) == 1
    assert table.visible("g", "u") == [other]


def test_a_retry_visible_again_wakes_all_polls_of_its_group():
    mine, other = ParkedPoll("g", "t", 3, 1), ParkedPoll("h", "t", None, 2)
    table = parked(mine, other)
    assert table.visible("g", "%RETRY%g") == [mine]
    assert len(table) == 1


def test_of_each_group_one_poll_on_all_queues_is_woken_the_one_that_waits_longest():
    mine = [ParkedPoll("g", "t", None, number) for number in range(3)]
    others = [ParkedPoll("h", "t", None, number) for number in range(2)]
    table = parked(*mine, *others)
    assert table.arrived("t", 0) == [mine[0], others[0]]
    assert table.visible("g", "t") == [mine[1]]
    table.park(mine[0])
    assert table.visible("g", "%RETRY%g") == [mine[2]]
    assert table.arrived("t", 1) == [mine[0], others[1]]
    assert len(table) == 0


def test_all_polls_on_one_queue_are_woken():
    mine = [ParkedPoll("g", "t", 0, number) for number in range(3)]
    table = parked(*mine)
    assert table.arrived("t", 0) == mine


def test_a_removed_poll_is_not_woken():
    hold = ParkedPoll("g", "t", None, 1)
    table = parked(hold)
    assert table.remove(hold)
    assert not table.remove(hold)
    assert table.arrived("t", 0) == []
    assert len(table) == 0


def test_a_wake_up_does_not_visit_holds_on_other_queues():
    table = parked(*(ParkedPoll(f"g{n}", f"t{n}", None, n) for n in range(20_000)))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    woken = table.arrived("t77", 0)
    sys.setprofile(None)
    assert len(woken) == 1
    assert calls < 50
