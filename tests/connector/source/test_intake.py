"""The start of a micro-batch, and the number of messages that it reads under all limits."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_pyrocket.options.batching import Admission
from pyspark_pyrocket.source.admission import Intake
from support.byte_sizes import Lengths, ends, starts
from support.offsets import at, offsets

MINUTE = 60_000


def queue(*lengths):
    return {("t", 0): list(lengths)}


def taken(intake, store, first=0, last=None, **more):
    """Return the number of messages of queue 0 that a micro-batch reads, starting at `first`."""
    start = offsets({"t": {0: first}})
    end = ends(store.queues) if last is None else offsets({"t": {0: last}})
    return intake.take(store, start, end, **more)[at("t", 0)] - first


@pytest.fixture
def store():
    return Lengths(queue(*[100] * 1_000), now=10**12)


def test_micro_batch_waits_for_min_rows_or_max_delay(store):
    """A micro-batch waits for enough messages, or until the maximum delay has passed."""
    intake = Intake(Admission(min_rows=50, max_delay_ms=15 * MINUTE))
    assert taken(intake, store, 0, 5) == 5  # The first micro-batch of a run does not wait.
    assert taken(intake, store, 5, 54) == 0
    assert taken(intake, store, 5, 55) == 50
    store.time += 15 * MINUTE - 1
    assert taken(intake, store, 55, 56) == 0
    store.time += 1
    assert taken(intake, store, 55, 56) == 1
    assert taken(intake, store, 56, 57) == 0


def test_slow_arrivals_are_grouped_into_batches_of_max_delay(store):
    intake = Intake(Admission(min_rows=100, max_delay_ms=MINUTE))
    at, batches = 0, []
    for arrived in range(1, 1_001):  # One message a second.
        store.time += 1_000
        rows = taken(intake, store, at, arrived)
        at += rows
        batches += [rows] if rows else []
    assert batches == [1, *[60] * 16]


def test_max_delay_ends_without_new_messages(store):
    intake = Intake(Admission(min_rows=50, max_delay_ms=MINUTE))
    taken(intake, store, 0, 1)
    assert not intake.is_over(store)
    taken(intake, store, 1, 2)
    assert not intake.is_over(store)
    store.time += MINUTE
    assert intake.is_over(store)
    assert taken(intake, store, 1, 2) == 1
    assert not intake.is_over(store)


def test_time_without_messages_does_not_count_as_delay(store):
    intake = Intake(Admission(min_rows=50, max_delay_ms=MINUTE))
    assert taken(intake, store, 7, 7) == 0
    assert taken(intake, store, 7, 8) == 1


def test_a_clock_that_was_set_back_delays_no_messages(store):
    intake = Intake(Admission(min_rows=50, max_delay_ms=MINUTE))
    taken(intake, store, 0, 1)
    store.time -= 60 * MINUTE
    assert taken(intake, store, 1, 2) == 1


def test_min_rows_do_not_apply_to_the_last_batch_of_available_now(store):
    intake = Intake(Admission(min_rows=50, max_rows=60))
    ends_at = [0]
    while rows := taken(intake, store, ends_at[-1], 130, waits=False):
        ends_at.append(ends_at[-1] + rows)
    assert ends_at == [0, 60, 120, 130]


def test_the_smaller_of_max_rows_and_max_bytes_limits_a_batch(store):
    """Of both limits, the one that admits fewer messages applies."""
    assert taken(Intake(Admission(max_rows=30, max_bytes=10_000)), store) == 30
    assert taken(Intake(Admission(max_rows=300, max_bytes=10_000)), store) == 100
    assert taken(Intake(Admission(max_rows=300)), store) == 300
    assert taken(Intake(Admission()), store) == 1_000


def test_a_batch_with_min_rows_reads_up_to_max_rows(store):
    intake = Intake(Admission(min_rows=50, max_rows=60))
    taken(intake, store, 0, 1)
    assert taken(intake, store, 1, 1_000) == 60


@given(
    st.dictionaries(
        st.tuples(st.just("t"), st.integers(0, 6)),
        st.lists(st.integers(91, 5_000), max_size=30),
        min_size=1,
    ),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(1, 50_000),
    st.none() | st.integers(1, 100),
)
def test_limited_batches_of_available_now_read_every_queue_to_its_end(
    queues, max_rows, max_bytes, min_rows
):
    """Whatever the limits, each batch reads from every queue that has messages left.

    A batch exceeds `max_rows` only by reading one message of each of these queues.
    """
    admission = Admission(max_rows=max_rows, max_bytes=max_bytes, min_rows=min_rows)
    store, intake, begin, end = Lengths(queues), Intake(admission), starts(queues), ends(queues)
    waiting = sum(bool(lengths) for lengths in queues.values())
    for _ in range(end.minus(begin).total()):
        if begin == end:
            break
        after = intake.take(store, begin, end, waits=False)
        assert all(begin[queue] < after[queue] for queue in end.minus(begin))
        assert max_rows is None or after.minus(begin).total() <= max(max_rows, waiting)
        begin = after
    assert begin == end


def test_default_limit_is_logged_when_it_starts_and_stops_limiting(store, caplog):
    """The log shows when a limit starts and stops to apply, and how to remove it."""
    intake = Intake(Admission(max_bytes=256 << 20, by_default=True))
    big = Lengths(queue(*[64 << 20] * 9))
    with caplog.at_level(logging.INFO, "pyspark_pyrocket"):
        assert [taken(intake, big, at) for at in (0, 4, 8)] == [4, 4, 1]
    assert caplog.messages == [
        "9 messages are pending; a micro-batch reads at most 256 MiB at a time "
        "(maxBytesPerTrigger=none removes the limit): the next one reads 4",
        "the limit no longer applies: micro-batches read all pending messages",
    ]


def test_max_bytes_per_trigger_is_exceeded_by_one_message_per_queue_at_most():
    queues = {("t", at): [3_000] * 10 for at in range(4)}
    store, start = Lengths(queues), starts(queues)
    end = Intake(Admission(max_bytes=5_000)).take(store, start, ends(queues))
    assert end.by_topic() == {"t": dict.fromkeys(range(4), 1)}
    end = Intake(Admission(max_bytes=60_000)).take(store, start, ends(queues))
    assert store.bytes(start, end) == 60_000


@pytest.mark.parametrize(
    ("admission", "text"),
    [
        (Admission(), "everything at once"),
        (Admission(max_rows=5), "at most 5 messages at a time"),
        (Admission(max_bytes=64 << 20), "at most 64 MiB at a time"),
        (Admission(max_rows=5, max_bytes=1_500), "at most 5 messages and 1500 bytes at a time"),
    ],
)
def test_limits_are_described_in_the_log(admission, text):
    assert admission.describe() == text
