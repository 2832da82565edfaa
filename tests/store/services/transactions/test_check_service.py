"""When and how often undecided half messages are checked, and when they are discarded."""

import pytest
from support.halves import (
    COMMIT,
    MINUTE,
    ROLLBACK,
    SECOND,
    UNKNOWN,
    Listener,
    discarded,
    halves,
    ops,
    producer,
    queue,
    rounds,
)
from support.stores import bodies, message

HOUR = 60 * MINUTE


def test_message_is_not_checked_before_six_seconds(store, one, listener, clock):
    one.send(message())
    one.close()
    with producer(store, "pg", listener) as other:
        clock.now += 6 * SECOND
        assert other.check_now() == 0
    clock.now += 1
    with producer(store, "pg", listener) as other:
        assert other.check_now() == 1
    assert [seen.body for seen in listener.checked] == [b"x"]


def test_a_message_is_checked_when_its_timeout_has_passed_and_then_every_minute(one, clock):
    one.send(message())
    assert one.check_now() == 0, "the first round runs immediately"
    assert rounds(one, clock, 2, every=3 * SECOND) == [0, 0]
    assert rounds(one, clock, 1, every=SECOND) == [1]
    assert rounds(one, clock, 6, every=10 * SECOND - 1) == [0] * 6
    assert rounds(one, clock, 1, every=SECOND) == [1]
    assert rounds(one, clock, 4, every=15 * SECOND) == [0, 0, 0, 1]


def test_check_request_has_the_real_topic(one, listener, clock):
    result = one.send(message(queue_id=3, tags="A", keys=["k"]))
    rounds(one, clock)
    (asked,) = listener.checked
    assert (asked.topic, asked.queue_id, asked.tags, asked.keys) == ("t", 3, "A", ("k",))
    assert asked.msg_id == result.transaction_id


@pytest.mark.parametrize(("answer", "seen"), [(COMMIT, [b"x"]), (ROLLBACK, [])])
def test_the_answer_to_a_check_decides_the_message(store, one, listener, clock, answer, seen):
    one.send(message())
    listener.answer = answer
    assert rounds(one, clock, 3) == [1, 0, 0]
    assert bodies(store)[0] == seen
    assert store.transactions.pending() == []
    assert ops(store) == [1], "the copy is decided; the half cursor has passed the original"


def test_the_committed_message_refers_to_the_copy(store, one, listener, clock):
    one.send(message())
    listener.answer = COMMIT
    rounds(one, clock)
    (committed,), (_, copy) = queue(store, "t"), halves(store)
    assert committed.prepared_transaction_offset == copy.physical_offset
    assert committed.properties == copy.properties
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("answer", [UNKNOWN, None, "COMMIT"])
def test_a_message_is_discarded_after_fifteen_checks(store, one, listener, clock, answer):
    one.send(message())
    listener.answer = answer
    assert rounds(one, clock, 17) == [1] * 15 + [0, 0]
    (gone,) = discarded(store)
    assert gone.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert (gone.body, gone.queue_id, gone.properties["REAL_TOPIC"]) == (b"x", 0, "t")
    assert len(halves(store)) == 16
    assert store.transactions.pending() == []
    assert store.topics.get("TRANS_CHECK_MAX_TIME_TOPIC").read_queues == 1
    assert ops(store) == []


def test_the_last_check_can_be_answered_before_the_message_is_discarded(
    store, one, listener, clock
):
    one.send(message())
    rounds(one, clock, 14)
    listener.answer = COMMIT
    assert rounds(one, clock, 3) == [1, 0, 0]
    assert bodies(store)[0] == [b"x"]
    assert discarded(store) == []


def test_a_failed_listener_is_asked_again(one, listener, clock):
    one.send(message())
    listener.answer = lambda message: 1 / 0
    assert rounds(one, clock, 3) == [1, 1, 1]


def test_a_message_exactly_72_hours_old_is_checked(store, one, listener, clock):
    one.send(message())
    one.close()
    clock.now += 72 * HOUR
    with producer(store, "pg", listener) as late:
        assert late.check_now() == 1


def test_a_message_in_its_immunity_time_is_renewed_without_a_check(store, one, listener, clock):
    one.send(message(), immunity_s=150)
    assert rounds(one, clock, 4) == [0, 0, 1, 1]
    copies = halves(store)
    own = [half.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for half in copies]
    assert own == [None, "0", "0", "0", "0"]
    counts = [half.properties.get("TRANSACTION_CHECK_TIMES") for half in copies]
    assert counts == [None, "1", "2", "3", "4"]


def test_long_immunity_leaves_one_check(store, one, listener, clock):
    one.send(message(), immunity_s=20 * 60)
    listener.answer = COMMIT
    assert rounds(one, clock, 22) == [0] * 20 + [1, 0]
    assert bodies(store)[0] == [b"x"]
    assert discarded(store) == []


@pytest.fixture
def elsewhere(open_store, listener):
    """A producer of the same group in another process."""
    with producer(open_store(), "pg", listener) as elsewhere:
        yield elsewhere


def test_a_message_renewed_in_its_immunity_time_can_be_decided_by_its_first_offset(
    store, elsewhere, clock
):
    """The local transaction takes longer than the interval between two rounds."""

    def slow(message, arg):
        assert rounds(elsewhere, clock, 2) == [0, 0]
        return COMMIT

    with producer(store, listener=Listener(slow)) as one:
        assert one.send(message(), immunity_s=200).error is None
    assert len(halves(store)) == 3
    assert rounds(elsewhere, clock, 5) == [0] * 5
    assert bodies(store)[0] == [b"x"]
    assert store.transactions.pending() == []


def test_check_by_another_process_during_execution_is_harmless(store, elsewhere, clock):
    """RocketMQ would check the copy again and store the message twice."""

    def slow(message, arg):
        assert rounds(elsewhere, clock, 3) == [1, 1, 1]
        return COMMIT

    with producer(store, listener=Listener(slow)) as one:
        assert one.send(message(flag=7)).error is None
    assert rounds(elsewhere, clock, 3) == [0] * 3
    (committed,) = queue(store, "t")
    assert (committed.body, committed.flag) == (b"x", 7)
    copy = halves(store)[-1]
    assert committed.prepared_transaction_offset == copy.physical_offset


def test_clock_set_back_does_not_delay_checks(one, clock):
    one.send(message())
    rounds(one, clock)
    clock.now -= 10 * HOUR
    assert one.check_now() == 1
