"""A send is confirmed when a replica has it, and gets RocketMQ's status without one."""

import threading
import time
from concurrent.futures import Future

import pytest
from pyrocket.broker.append_queue import AppendQueue
from pyrocket.broker.confirmations import Confirmations
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.errors import BrokerBusyError, MessageError
from pyrocket.values.message import AppendResult, SendStatus

OK, LATE, NONE = (
    SendStatus.SEND_OK,
    SendStatus.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE,
)
SOON_S, LONG_S = 0.05, 30


class Primary:
    """The end of a log, and whether a replica is near it."""

    def __init__(self):
        self.end, self.is_near, self.made = 0, True, []

    def confirmations(self, timeout_s):
        self.made.append(Confirmations(lambda: self.end, lambda: self.is_near, timeout_s))
        return self.made[-1]


@pytest.fixture
def primary():
    primary = Primary()
    yield primary
    for confirmations in primary.made:
        confirmations.close()


def test_without_sync_everything_is_confirmed_at_once(primary):
    primary.is_near, confirmations = False, primary.confirmations(0)
    assert confirmations.status().result(0) is OK
    assert confirmations.state == ""


def test_a_send_is_confirmed_when_a_replica_has_all_of_it(primary):
    confirmations = primary.confirmations(LONG_S)
    primary.end = 10
    first = confirmations.status()
    primary.end = 20
    second = confirmations.status()
    confirmations.acknowledged(9)
    assert confirmations.is_waiting
    confirmations.acknowledged(19)
    assert first.result(5) is OK
    assert not second.done()
    confirmations.acknowledged(20)
    assert second.result(5) is OK
    assert not confirmations.is_waiting
    assert confirmations.state == "SEND_OK"


def test_what_a_replica_already_has_is_confirmed_without_another_acknowledgement(primary):
    confirmations = primary.confirmations(LONG_S)
    confirmations.acknowledged(10)
    primary.end = 10
    assert confirmations.status().result(5) is OK


def test_a_replica_that_is_too_slow(primary):
    confirmations = primary.confirmations(SOON_S)
    primary.end = 10
    began = time.monotonic()
    assert confirmations.status().result(5) is LATE
    assert time.monotonic() - began >= SOON_S
    confirmations.acknowledged(10)
    assert confirmations.status().result(5) is OK


def test_without_a_near_replica_nothing_waits(primary):
    confirmations = primary.confirmations(LONG_S)
    primary.end, primary.is_near = 10, False
    assert confirmations.status().result(0) is NONE
    assert confirmations.state == "SLAVE_NOT_AVAILABLE"


def test_what_waits_at_the_end_was_not_confirmed(primary):
    confirmations = primary.confirmations(LONG_S)
    primary.end = 10
    status = confirmations.status()
    confirmations.close()
    assert status.result(0) is LATE
    assert confirmations.status().result(0) is LATE, "what a call appends that is still served"
    assert not confirmations.is_running


def test_results_get_the_status_and_other_calls_an_error_that_may_be_repeated(primary):
    confirmations = primary.confirmations(SOON_S)
    primary.end, result = 10, AppendResult(1, 10, 10)
    assert confirmations.holding(lambda: result)().result(5).status is LATE
    with pytest.raises(BrokerBusyError) as caught:
        confirmations.holding(lambda: None)().result(5)
    assert caught.value.code == "FLUSH_SLAVE_TIMEOUT"
    confirmations.acknowledged(10)
    assert confirmations.holding(lambda: result)().result(5) is result
    assert confirmations.holding(lambda: None)().result(5) is None


def test_appends_go_on_while_their_results_are_held_back():
    """Failed appends, and those of the broker's own state, are not held back."""
    status, groups = Future(), []

    def append(requests):
        groups.append(len(requests))
        if len(groups) == 2:
            return [MessageError("too long")] * len(requests)
        return [AppendResult(1, 1, len(groups))] * len(requests)

    queue = AppendQueue(append, confirm=lambda: status)
    records = ReceivedRecords({}, [])
    first = queue.put(records)
    while not groups:
        time.sleep(0.001)
    failed = queue.put(records)
    with pytest.raises(MessageError):
        failed.result(5)
    assert queue.put(records, cancellable=False).result(5).status is OK
    assert not first.done()
    last = queue.put(records)
    queue.close()
    status.set_result(NONE)
    assert [held.result(0).status for held in (first, last)] == [NONE, NONE]


def test_many_threads_are_confirmed_in_any_order(primary):
    confirmations, lock = primary.confirmations(LONG_S), threading.Lock()
    statuses = []

    def send():
        for _ in range(50):
            with lock:
                primary.end += 1
            statuses.append(confirmations.status())

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        confirmations.acknowledged(primary.end)
    confirmations.acknowledged(primary.end)
    assert {status.result(5) for status in statuses} == {OK}
