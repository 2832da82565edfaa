"""Decisions of transactions, and checks by brokers, on a simulated clock."""

import asyncio
import logging

import pytest
from pyrocket.client.core.transactions import MAX_CHECKS, TransactionCore, decision
from pyrocket.errors import TransactionError
from pyrocket.values.transactions import HalfMessageRef, LocalTransactionState, Undecided
from support.simulated_loop import run_simulated

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT,
    LocalTransactionState.ROLLBACK,
    LocalTransactionState.UNKNOWN,
)


class Brokers:
    """Records the decisions; raises `error`, and answers after `seconds`."""

    def __init__(self, error=None, seconds=0):
        self.ended, self.error, self.seconds, self.ask = [], error, seconds, None

    async def end_transaction(self, undecided, state, *, from_check):
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        self.ended.append((undecided.half.transaction_id, state, from_check))

    def watch_checks(self, group, ask):
        self.ask = ask
        return lambda: setattr(self, "ask", None)


def undecided(name):
    return Undecided("a", HalfMessageRef("shop", 0, 0, name), name)


class Listener:
    """Returns or raises results in order, then COMMIT; records the messages."""

    def __init__(self, *results, seconds=1):
        self.results, self.asked, self.seconds = [*results], [], seconds
        self.running = self.most = 0

    async def __call__(self, message):
        self.asked.append(message)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        result = self.results.pop(0) if self.results else COMMIT
        if isinstance(result, Exception):
            raise result
        return result


def core(brokers, listener=None):
    return TransactionCore("shop", brokers, listener or Listener(), timeout_ms=3000)


def checked(brokers, listener, names):
    async def run():
        transactions = core(brokers, listener)
        await transactions.start()
        for name in names:
            brokers.ask(undecided(name))
        await asyncio.sleep(60)
        await transactions.stop()

    run_simulated(run())


@pytest.mark.parametrize(
    ("result", "state"), [(COMMIT, COMMIT), (ROLLBACK, ROLLBACK), (None, UNKNOWN), (1, UNKNOWN)]
)
def test_a_result_of_another_type_is_unknown(result, state):
    assert decision(result) is state


def test_checks_are_answered_one_at_a_time_in_order():
    brokers, listener = Brokers(), Listener(COMMIT, ROLLBACK)
    checked(brokers, listener, ["1", "2"])
    assert brokers.ended == [("1", COMMIT, True), ("2", ROLLBACK, True)]
    assert listener.most == 1
    assert brokers.ask is None


def test_a_listener_that_fails_or_does_not_know_decides_nothing():
    brokers = Brokers()
    checked(brokers, Listener(ValueError("?"), None, UNKNOWN), "1234")
    assert brokers.ended == [("4", COMMIT, True)]


def test_a_message_is_not_checked_twice_at_once_or_while_it_is_executed():
    brokers, listener = Brokers(), Listener()

    async def run():
        transactions = core(brokers, listener)
        await transactions.start()
        transactions.executing("0")
        for name in "0110":
            brokers.ask(undecided(name))
        await asyncio.sleep(5)
        await transactions.end(undecided("0"), UNKNOWN)
        for name in "01":
            brokers.ask(undecided(name))
        await asyncio.sleep(5)
        await transactions.stop()

    run_simulated(run())
    assert listener.asked == ["1", "0", "1"]


def test_no_check_is_answered_after_the_stop():
    brokers, listener = Brokers(), Listener(seconds=2)

    async def run():
        transactions = core(brokers, listener)
        await transactions.start()
        for name in "01":
            brokers.ask(undecided(name))
        await asyncio.sleep(1)
        await transactions.stop()
        await asyncio.sleep(60)

    run_simulated(run())
    assert listener.asked == ["0"]
    assert not brokers.ended


def test_a_check_without_room_is_dropped_and_logged(caplog):
    brokers, listener = Brokers(), Listener(seconds=0)
    checked(brokers, listener, map(str, range(MAX_CHECKS + 1)))
    assert len(listener.asked) == MAX_CHECKS
    assert "too many checks are pending" in caplog.text
    checked(brokers, listener, [str(MAX_CHECKS)])
    assert listener.asked[-1] == str(MAX_CHECKS)


@pytest.mark.parametrize(
    ("brokers", "text"),
    [
        (Brokers(TransactionError("gone", code="TRANSACTION_NOT_FOUND")), "gone"),
        (Brokers(seconds=10), "there was no answer in time"),
    ],
)
def test_an_error_of_a_decision_is_logged_and_returned(caplog, brokers, text):
    async def run():
        return await core(brokers).end(undecided("1"), COMMIT)

    assert run_simulated(run()) is not None
    assert text in caplog.text


def test_a_late_answer_to_a_check_is_normal(caplog):
    caplog.set_level(logging.INFO)
    checked(Brokers(TransactionError("late", code="TRANSACTION_ENDED")), Listener(), "1")
    assert "late" not in caplog.text
