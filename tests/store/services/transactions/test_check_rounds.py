"""Rounds of checks: size, failures, threads, and saved cursors."""

import threading
import time

import pytest
from pyrocket.disk import io
from pyrocket.disk.shared_state import HALF_CURSOR, OP_CURSOR
from pyrocket.errors import StoreUnavailableError
from pyrocket.formats.system_topics import HALF_TOPIC
from pyrocket.services.transactions.model import CheckPolicy
from pyrocket.services.transactions.producer import MAX_REQUESTS, TransactionProducer
from support.halves import (
    COMMIT,
    MINUTE,
    SECOND,
    UNKNOWN,
    Held,
    Listener,
    halves,
    ops,
    rounds,
)
from support.inner import inner
from support.stores import bodies, message, words


def test_a_round_sends_no_more_check_requests_than_the_producers_accept(store, one, clock):
    one.room = lambda: 3
    for n in range(5):
        one.send(message(b"%d" % n))
    assert rounds(one, clock) == [3]
    assert len(halves(store)) == 8, "messages about which no producer was asked are not renewed"
    assert MAX_REQUESTS == 2000


def test_many_messages_are_checked_in_parts(store, one, listener, clock):
    inner(store).transaction_bridge.policy = CheckPolicy(max_messages=4)
    for n in range(10):
        one.send(message(b"%d" % n))
    clock.now += MINUTE
    assert [one.check_now() for _ in range(4)] == [4, 4, 2, 0]
    assert [seen.body for seen in listener.checked] == [b"%d" % n for n in range(10)]


def test_the_cursors_move_with_the_checks(path, store, one, listener, clock):
    page = words(path)
    for n in range(3):
        one.send(message(b"%d" % n))
    listener.answer = lambda message: COMMIT if message.body == b"1" else UNKNOWN
    rounds(one, clock)
    assert page[HALF_CURSOR] == 3, "the half cursor has passed the originals"
    listener.answer = COMMIT
    rounds(one, clock)
    one.send(message(b"last"))
    rounds(one, clock)
    assert page[HALF_CURSOR] == len(halves(store))
    assert page[OP_CURSOR] >= len(ops(store)) - 1, "the op cursor is at most one message behind"
    page.close()


def test_a_message_is_not_checked_again_before_the_first_check_is_answered(
    store, one, listener, clock
):
    """A slow listener must not use up the message's checks."""
    one.send(message())
    clock.now += MINUTE
    for _ in range(20):
        store.transactions.run_checks()
        clock.now += MINUTE
    assert len(halves(store)) == 2
    listener.answer = COMMIT
    assert one.check_now() == 1
    assert bodies(store)[0] == [b"x"]


def test_the_thread_of_a_producer_runs_checks(store):
    """The thread waits by the machine's clock, not by the clock of the test."""
    held = Held(store, timeout_ms=0, interval_ms=0)
    inner(store).engine.clock.now += 1
    listener = Listener(UNKNOWN)

    def later(message):
        return COMMIT if len(listener.checked) == 3 else UNKNOWN

    listener.answer = later
    with TransactionProducer(held, "pg", listener) as one:
        one.send(message())
        inner(store).engine.clock.now += 1
        deadline = time.monotonic() + 20
        while held.transactions.pending():
            assert time.monotonic() < deadline
            time.sleep(0.01)
            inner(store).engine.clock.now += 1
    assert bodies(store)[0] == [b"x"]
    assert not any("transaction checks" in thread.name for thread in threading.enumerate())


def test_closing_the_store_stops_the_thread(open_store):
    store = open_store()
    one = TransactionProducer(Held(store), "pg", Listener())
    store.close()
    one._thread.join(10)
    assert not one._thread.is_alive()
    one.close()


def test_cursors_are_saved_for_rocketmq_after_each_round(store, one, clock):
    """If this process is killed, a broker must not check both a half message and its copy."""
    one.send(message())
    rounds(one, clock)
    assert store.groups.committed("CID_RMQ_SYS_TRANS", HALF_TOPIC) == {0: 1}


def test_failed_round_saves_no_cursors(store, one, clock, monkeypatch):
    def full(descriptor, data, at):
        raise OSError(28, "No space left on device")

    one.send(message())
    clock.now += MINUTE
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", full)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                one.check_now()
            clock.now += SECOND
    assert store.groups.committed("CID_RMQ_SYS_TRANS", HALF_TOPIC) == {}
    assert one.check_now() == 1, "it is retried a second later"


def test_round_is_retried_after_lock_timeout(store, one, clock):
    one.send(message())
    clock.now += MINUTE
    with inner(store).writer.exclusive():
        busy = threading.Thread(target=lambda: answers.append(one.check_now()))
        answers = []
        busy.start()
        busy.join(20)
    assert answers == [0]
    assert one.check_now() == 1
