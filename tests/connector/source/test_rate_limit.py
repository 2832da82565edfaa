"""Sharing the limits of a micro-batch between queues."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_pyrocket.source.admission import take_bytes, take_rows
from support.byte_sizes import Lengths, ends, starts
from support.offsets import offsets

backlogs = st.dictionaries(st.integers(0, 40), st.integers(0, 10_000), min_size=1)
queues_of_lengths = st.dictionaries(
    st.tuples(st.just("t"), st.integers(0, 8)),
    st.lists(st.integers(91, 5_000), max_size=40),
    min_size=1,
)


def take(backlog, max_rows):
    start = offsets({"t": dict.fromkeys(backlog, 100)})
    end = offsets({"t": {queue: 100 + rows for queue, rows in backlog.items()}})
    taken = take_rows(start, end, max_rows).by_topic()["t"]
    return {queue: offset - 100 for queue, offset in taken.items()}


@given(backlogs, st.integers(1, 20_000))
def test_max_rows_per_trigger_is_shared_fairly(backlog, max_rows):
    """At most the limit is read, except for one message of each queue; no queue starves."""
    taken = take(backlog, max_rows)
    waiting = sum(rows > 0 for rows in backlog.values())
    assert sum(taken.values()) == min(sum(backlog.values()), max(max_rows, waiting))
    assert taken.keys() == backlog.keys()
    for queue, rows in backlog.items():
        assert min(rows, 1) <= taken[queue] <= rows


@given(backlogs, st.integers(1, 20_000))
def test_larger_backlogs_contribute_more(backlog, max_rows):
    taken = take(backlog, max_rows)
    ordered = sorted(backlog, key=lambda queue: backlog[queue])
    for smaller, larger in itertools.pairwise(ordered):
        assert taken[smaller] <= taken[larger] + 1


def test_shares_are_proportional_to_backlogs():
    taken = take({0: 9_000, 1: 1_000, 2: 1}, 1_000)
    assert taken == {0: pytest.approx(900, abs=2), 1: pytest.approx(100, abs=2), 2: 1}


def test_a_limit_above_the_backlog_reads_everything():
    assert take({0: 5, 1: 0}, 100) == {0: 5, 1: 0}


@given(queues_of_lengths, st.integers(1, 100_000), st.integers(0, 10**9))
def test_max_bytes_per_trigger_is_shared_fairly(queues, max_bytes, first):
    """At most the limit plus one message of each queue is read; shares are fair."""
    store = Lengths(queues, first)
    start, end = starts(queues, first), ends(queues, first)
    taken = take_bytes(start, end, max_bytes, store)
    firsts = sum(lengths[0] for lengths in queues.values() if lengths)
    assert store.bytes(start, taken) <= max(max_bytes, firsts)
    assert taken.keys() == end.keys()
    for queue, offset in taken.items():
        assert min(first + 1, end[queue]) <= offset <= end[queue]
    if store.bytes(start, end) <= max_bytes and len(queues) == 1:
        assert taken == end


@given(queues_of_lengths, st.integers(1, 100_000))
def test_everything_is_read_eventually_under_a_byte_limit(queues, max_bytes):
    store, at, end = Lengths(queues), starts(queues), ends(queues)
    for _ in range(end.minus(at).total() + 1):
        at = take_bytes(at, end, max_bytes, store)
    assert at == end


def test_bytes_are_shared_in_proportion_to_backlogs():
    queues = {("t", 0): [1_000] * 9_000, ("t", 1): [1_000] * 1_000, ("t", 2): [1_000]}
    taken = take_bytes(starts(queues), ends(queues), 1_000_000, Lengths(queues)).by_topic()["t"]
    assert taken == {0: pytest.approx(900, abs=3), 1: pytest.approx(100, abs=3), 2: 1}


def test_the_share_that_a_queue_leaves_unused_after_a_wrong_estimate_is_given_to_others():
    queues = {("t", 0): [100_000, *[100] * 1_000], ("t", 1): [100] * 100_000}
    store = Lengths(queues)
    taken = take_bytes(starts(queues), ends(queues), 1_000_000, store)
    assert 900_000 <= store.bytes(starts(queues), taken) <= 1_000_000


def test_sizes_are_not_summed_if_the_messages_lie_close_together_in_the_log():
    queues = {("t", 0): [500] * 100}
    store = Lengths(queues)
    assert take_bytes(starts(queues), ends(queues), 50_000, store) == ends(queues)
    assert store.asked == 0


def test_the_cost_of_a_limit_of_bytes_does_not_grow_with_the_backlog():
    queues = {("t", queue): [1_000] * 50_000 for queue in range(4)}
    store = Lengths(queues)
    take_bytes(starts(queues), ends(queues), 1_000_000, store)
    assert store.asked < 3_000
