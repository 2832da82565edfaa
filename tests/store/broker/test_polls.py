"""The threads of long polls and of transactions survive errors; the end of a thread is reported."""

from dataclasses import replace

import pytest
from pyrocket.base.rounds import Rounds
from pyrocket.broker.broker import Broker
from pyrocket.broker.half_checks import BrokerTransactions
from pyrocket.broker.polls import ParkedPoll
from pyrocket.errors import BrokerBusyError
from support.name_server import wait_until
from support.pops import sent


@pytest.fixture
def broker(open_store):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    store.groups.create("g")
    found = Broker(store)
    found.polls  # noqa: B018  starts the thread
    yield found
    found.close()


@pytest.mark.parametrize("error", [KeyError("defect"), BrokerBusyError("full")])
def test_the_thread_of_polls_survives_errors(broker, caplog, monkeypatch, error):
    polls, calls, woken = broker.polls, [], []

    def fails():
        calls.append(1)
        raise error

    monkeypatch.setattr(polls.pop, "sweep", fails)
    for _ in range(3):
        count = len(calls)
        polls.visible_in("g", "t", 1)
        wait_until(lambda: len(calls) > count)  # noqa: B023
    polls.holds.park(ParkedPoll("g", "t", None, lambda: woken.append(1)))
    sent(broker.store, 1)
    polls.appended()
    wait_until(lambda: woken)
    (logged,) = [one for one in caplog.records if "sweeping the states" in one.getMessage()]
    assert bool(logged.exc_info) == isinstance(error, KeyError)
    assert broker.trouble == ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_reported_as_trouble(broker, monkeypatch):
    def dies():
        raise SystemExit

    monkeypatch.setattr(broker.polls.pop, "sweep", dies)
    broker.polls.visible_in("g", "t", 1)
    wait_until(lambda: broker.trouble == "the thread of long polls has ended")


def test_a_sweep_runs_even_if_renewals_fail(broker, monkeypatch):
    def fails():
        raise BrokerBusyError("full")

    monkeypatch.setattr(broker.polls.renewals, "renew", fails)
    pop = broker.pop
    sent(broker.store, 1)
    pop.receive("g", "t", invisible_ms=50).stored.result(10)
    pop._settings = replace(pop._settings, commit_ms=0)
    wait_until(lambda: broker.store.groups.committed("g", "t") == {0: 0})


def test_the_thread_of_transactions_survives_errors(broker, caplog, monkeypatch):
    rounds = []

    def fails():
        rounds.append(1)
        raise KeyError("defect")

    monkeypatch.setattr(broker.transactions._transactions, "run_checks", fails)

    class NoProducers:
        def topics(self):
            return ()

    broker.transactions.ask_through(NoProducers())
    wait_until(lambda: len(rounds) > 2)
    (logged,) = [one for one in caplog.records if "checking transactions" in one.getMessage()]
    assert logged.exc_info
    assert isinstance(broker.transactions, BrokerTransactions)
    assert broker.transactions.is_running


def test_an_error_is_logged_again_after_a_success(caplog):
    rounds, fails = Rounds(), iter([True, True, False, True])

    def work():
        if next(fails):
            raise ValueError("defect")

    for _ in range(4):
        rounds.run("it failed", work)
    assert [one.getMessage() for one in caplog.records] == ["it failed"] * 2
