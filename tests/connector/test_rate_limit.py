"""How a limit is shared out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_pyrocket.rate_limit import take_rows

backlogs = st.dictionaries(st.integers(0, 40), st.integers(0, 10_000), min_size=1)


def take(backlog, max_rows):
    start = {"t": dict.fromkeys(backlog, 100)}
    end = {"t": {queue: 100 + rows for queue, rows in backlog.items()}}
    taken = take_rows(start, end, max_rows)["t"]
    return {queue: offset - 100 for queue, offset in taken.items()}


@given(backlogs, st.integers(1, 20_000))
def test_a_limit_is_kept_except_for_one_message_of_each_queue(backlog, max_rows):
    taken = take(backlog, max_rows)
    waiting = sum(rows > 0 for rows in backlog.values())
    assert sum(taken.values()) == min(sum(backlog.values()), max(max_rows, waiting))


@given(backlogs, st.integers(1, 20_000))
def test_every_queue_with_a_backlog_gives_some_and_none_more_than_it_has(backlog, max_rows):
    taken = take(backlog, max_rows)
    assert taken.keys() == backlog.keys()
    for queue, rows in backlog.items():
        assert min(rows, 1) <= taken[queue] <= rows


@given(backlogs, st.integers(1, 20_000))
def test_larger_backlogs_give_more(backlog, max_rows):
    taken = take(backlog, max_rows)
    ordered = sorted(backlog, key=lambda queue: backlog[queue])
    for smaller, larger in itertools.pairwise(ordered):
        assert taken[smaller] <= taken[larger] + 1


def test_shares_are_proportional_to_backlogs():
    taken = take({0: 9_000, 1: 1_000, 2: 1}, 1_000)
    assert taken == {0: pytest.approx(900, abs=2), 1: pytest.approx(100, abs=2), 2: 1}


def test_a_limit_above_the_backlog_takes_all():
    assert take({0: 5, 1: 0}, 100) == {0: 5, 1: 0}
