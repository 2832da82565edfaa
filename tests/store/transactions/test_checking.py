"""When producers are asked about undecided half messages, how often, and what becomes of them."""

import threading
import time

import pytest
from halves import (
    COMMIT,
    MINUTE,
    ROLLBACK,
    SECOND,
    UNKNOWN,
    Held,
    Listener,
    discarded,
    halves,
    ops,
    producer,
    queue,
)
from pyrocket.disk.state_page import HALF_CURSOR, OP_CURSOR
from pyrocket.transactions.producer import MOST_QUESTIONS, TransactionProducer
from stores import bodies, message, words

HOUR = 60 * MINUTE


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def held(store):
    return Held(store)


@pytest.fixture
def listener():
    return Listener(UNKNOWN)


@pytest.fixture
def one(held, listener):
    with producer(held, "pg", listener) as one:
        yield one


def rounds(one, clock, count=1, every=MINUTE):
    """So many intervals pass; returns how many questions each brought."""
    asked = []
    for _ in range(count):
        clock.now += every
        asked.append(one.check_now())
    return asked


def test_nobody_is_asked_before_six_seconds(held, one, listener, clock):
    one.send(message())
    one.close()
    with producer(held, "pg", listener) as other:
        clock.now += 6 * SECOND
        assert other.check_now() == 0
    clock.now += 1
    with producer(held, "pg", listener) as other:
        assert other.check_now() == 1
    assert [seen.body for seen in listener.checked] == [b"x"]


def test_a_round_is_made_every_minute(one, clock):
    one.send(message())
    assert one.check_now() == 0, "the first round is at once"
    assert rounds(one, clock, 6, every=10 * SECOND - 1) == [0] * 6
    clock.now += 6
    assert one.check_now() == 1
    assert rounds(one, clock, 4, every=15 * SECOND) == [0, 0, 0, 1]


def test_what_is_asked_about_is_the_message_with_its_own_topic(one, listener, clock):
    result = one.send(message(queue_id=3, tags="A", keys=["k"]))
    rounds(one, clock)
    (asked,) = listener.checked
    assert (asked.topic, asked.queue_id, asked.tags, asked.keys) == ("t", 3, "A", ("k",))
    assert asked.msg_id == result.transaction_id


@pytest.mark.parametrize(("answer", "seen"), [(COMMIT, [b"x"]), (ROLLBACK, [])])
def test_an_answer_decides(store, held, one, listener, clock, answer, seen):
    one.send(message())
    listener.answer = answer
    assert rounds(one, clock, 3) == [1, 0, 0]
    assert bodies(store)[0] == seen
    assert held.transactions.pending() == []
    assert ops(store) == [1], "the copy is decided; the half cursor has passed the original"


def test_a_committed_copy_names_the_copy(store, one, listener, clock):
    one.send(message())
    listener.answer = COMMIT
    rounds(one, clock)
    (committed,), (_, copy) = queue(store, "t"), halves(store)
    assert committed.prepared_transaction_offset == copy.physical_offset
    assert committed.properties == copy.properties
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize("answer", [UNKNOWN, None, "COMMIT"])
def test_fifteen_checks_then_the_message_is_discarded(store, held, one, listener, clock, answer):
    one.send(message())
    listener.answer = answer
    assert rounds(one, clock, 17) == [1] * 15 + [0, 0]
    (gone,) = discarded(store)
    assert gone.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert (gone.body, gone.queue_id, gone.properties["REAL_TOPIC"]) == (b"x", 0, "t")
    assert len(halves(store)) == 16
    assert held.transactions.pending() == []
    assert store.topic("TRANS_CHECK_MAX_TIME_TOPIC").read_queues == 1
    assert ops(store) == []


def test_the_last_question_can_still_be_answered(store, one, listener, clock):
    one.send(message())
    rounds(one, clock, 14)
    listener.answer = COMMIT
    assert rounds(one, clock, 3) == [1, 0, 0]
    assert bodies(store)[0] == [b"x"]
    assert discarded(store) == []


def test_a_listener_that_fails_is_asked_again(one, listener, clock):
    one.send(message())
    listener.answer = lambda message: 1 / 0
    assert rounds(one, clock, 3) == [1, 1, 1]


def test_after_72_hours_it_is_discarded_unasked(store, held, one, listener, clock):
    one.send(message())
    one.close()
    clock.now += 72 * HOUR + 1
    with producer(held, "pg", listener) as late:
        assert late.check_now() == 0
    (gone,) = discarded(store)
    assert gone.properties["TRANSACTION_CHECK_TIMES"] == "1", "RocketMQ counts before it looks"
    assert held.transactions.pending() == []


def test_one_of_exactly_72_hours_is_asked(held, one, listener, clock):
    one.send(message())
    one.close()
    clock.now += 72 * HOUR
    with producer(held, "pg", listener) as late:
        assert late.check_now() == 1


def test_an_immune_message_is_put_back_and_nobody_is_asked(store, one, listener, clock):
    one.send(message(), immunity_s=150)
    assert rounds(one, clock, 4) == [0, 0, 1, 1]
    copies = halves(store)
    own = [half.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for half in copies]
    assert own == [None, "0", "0", "0", "0"]
    counts = [half.properties.get("TRANSACTION_CHECK_TIMES") for half in copies]
    assert counts == [None, "1", "2", "3", "4"]


def test_long_immunity_leaves_a_check_to_be_made(store, one, listener, clock):
    one.send(message(), immunity_s=20 * 60)
    listener.answer = COMMIT
    assert rounds(one, clock, 22) == [0] * 20 + [1, 0]
    assert bodies(store)[0] == [b"x"]
    assert discarded(store) == []


def test_an_immune_message_that_was_put_back_is_decided_by_its_first_place(store, held, clock):
    """The local transaction takes longer than a round."""

    def slow(message, arg):
        rounds(one, clock, 2)
        return COMMIT

    with producer(held, listener=Listener(slow)) as one:
        assert one.send(message(), immunity_s=200).error is None
        assert rounds(one, clock, 5) == [0] * 5
    assert bodies(store)[0] == [b"x"]
    assert held.transactions.pending() == []


def test_a_check_in_the_middle_of_execution_does_no_harm(store, held, clock):
    """RocketMQ would ask again about the copy, and store the message twice."""

    def slow(message, arg):
        assert rounds(one, clock, 3) == [1, 1, 1]
        return COMMIT

    with producer(held, listener=Listener(slow, UNKNOWN)) as one:
        assert one.send(message()).error is None
        assert rounds(one, clock, 3) == [0] * 3
    assert bodies(store)[0] == [b"x"]


def test_a_clock_that_was_set_back_does_not_put_checks_off(one, clock):
    one.send(message())
    rounds(one, clock)
    clock.now -= 10 * HOUR
    assert one.check_now() == 1


def test_no_more_is_asked_than_can_wait(store, one, clock):
    one.room = lambda: 3
    for n in range(5):
        one.send(message(b"%d" % n))
    assert rounds(one, clock) == [3]
    assert len(halves(store)) == 8, "what cannot be asked is not counted"
    assert MOST_QUESTIONS == 2000


def test_many_are_asked_in_parts(store, one, listener, clock, monkeypatch):
    monkeypatch.setattr("pyrocket.transactions.checking.MOST_MESSAGES", 4)
    for n in range(10):
        one.send(message(b"%d" % n))
    clock.now += MINUTE
    assert [one.check_now() for _ in range(4)] == [4, 4, 2, 0]
    assert [seen.body for seen in listener.checked] == [b"%d" % n for n in range(10)]


def test_the_cursors_follow(path, store, one, listener, clock):
    page = words(path)
    for n in range(3):
        one.send(message(b"%d" % n))
    listener.answer = lambda message: COMMIT if message.body == b"1" else UNKNOWN
    rounds(one, clock)
    assert page[HALF_CURSOR] == 3, "the originals are passed"
    listener.answer = COMMIT
    rounds(one, clock)
    one.send(message(b"last"))
    rounds(one, clock)
    assert page[HALF_CURSOR] == len(halves(store))
    assert page[OP_CURSOR] >= len(ops(store)) - 1, "at most one move behind"
    page.close()


def test_nobody_is_asked_twice_before_the_first_answer(store, held, one, listener, clock):
    """A listener that takes long must not bring the message nearer to its end."""
    one.send(message())
    clock.now += MINUTE
    for _ in range(20):
        held.transactions.run_checks()
        clock.now += MINUTE
    assert len(halves(store)) == 2
    listener.answer = COMMIT
    assert one.check_now() == 1
    assert bodies(store)[0] == [b"x"]


def test_a_thread_asks_by_itself(path, held, store):
    """With real time, and the least of it."""
    held = Held(store, timeout_ms=0, interval_ms=0)
    store._clock.now += 1
    listener = Listener(UNKNOWN)

    def later(message):
        return COMMIT if len(listener.checked) == 3 else UNKNOWN

    listener.answer = later
    with TransactionProducer(held, "pg", listener) as one:
        one.send(message())
        store._clock.now += 1
        deadline = time.monotonic() + 20
        while held.transactions.pending():
            assert time.monotonic() < deadline
            time.sleep(0.01)
            store._clock.now += 1
    assert bodies(store)[0] == [b"x"]
    assert not any("transaction checks" in thread.name for thread in threading.enumerate())


def test_the_thread_ends_with_the_store(open_store):
    store = open_store()
    one = TransactionProducer(Held(store), "pg", Listener())
    store.close()
    one._thread.join(10)
    assert not one._thread.is_alive()
    one.close()
