"""Appends of state changes by the broker's append thread, including rejected and failed appends."""

import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest
from pyrocket.broker.append_queue import AppendQueue
from pyrocket.broker.pop.events import Start
from pyrocket.broker.pop.pop import Pop
from pyrocket.errors import BrokerBusyError, StoreFailedError
from pyrocket.store import sender_of
from pyrocket.values.message import SendStatus
from support.pops import acked, at_once, attempts, bodies, handles, popped, sent


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t", read_queues=2, write_queues=2)
    store.groups.create("g")
    return store


def test_concurrent_consumers_receive_each_message_once(store):
    queue = AppendQueue(sender_of(store).append_received)
    pop, seen, lock = Pop(store, queue.put), [], threading.Lock()
    wanted = {*sent(store, 60), *sent(store, 60, first=60, queue_id=1)}

    def consume():
        while messages := pop.receive("g", "t", max_messages=3).messages:
            done = pop.ack("g", "t", [one.handle for one in messages])
            assert all(done.valid)
            done.stored.result(30)
            with lock:
                seen.extend((one.message.body, one.attempt) for one in messages)

    def sweep():
        while len(seen) < len(wanted) and any(each.is_alive() for each in consumers):
            pop.sweep()
            pop.snapshot()

    consumers = [threading.Thread(target=consume) for _ in range(4)]
    threads = [*consumers, threading.Thread(target=sweep)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(seen) == sorted((body, 1) for body in wanted)
    pop.close()
    queue.close()
    assert store.groups.committed("g", "t") == {0: 60, 1: 60}


def test_a_rejected_append_changes_nothing(store):
    pop = popped(store)
    sent(store, 2)
    first = pop.receive("g", "t", max_messages=1)
    works = pop._append

    def busy(records):
        raise BrokerBusyError("full", remedy="wait")

    pop._append = busy
    for call in (
        lambda: pop.receive("g", "t"),
        lambda: pop.ack("g", "t", handles(first)),
        lambda: pop.change_invisible("g", "t", handles(first)[0], 0),
        lambda: pop.forward_to_dlq("g", "t", handles(first)[0]),
    ):
        with pytest.raises(BrokerBusyError):
            call()
    pop._append = works
    assert acked(pop, first) == (True,)
    assert attempts(pop.receive("g", "t")) == {b"1": 1}


def fails(records):
    failed = Future()
    failed.set_exception(StoreFailedError("fsync"))
    return failed


def test_a_failed_append_is_reported_and_its_messages_are_received_again(store, clock):
    pop = popped(store)
    sent(store, 3)
    works, pop._append = pop._append, fails
    received = pop.receive("g", "t", max_messages=2, invisible_ms=10_000)
    with pytest.raises(StoreFailedError):
        received.stored.result(0)
    pop._append = works
    assert bodies(pop.receive("g", "t")) == [b"2"]
    later = Pop(store, at_once(store))
    clock.now += 10_000
    assert {*attempts(later.receive("g", "t"))} >= {b"0", b"1"}


def test_the_order_survives_a_failed_append_and_a_restart(store, clock):
    pop = popped(store)
    store.groups.update("g", fifo=True)
    for number in range(3):
        sent(store, 1, first=number, sharding_key="B" if number == 2 else "A")
    works, pop._append = pop._append, fails
    pop.receive("g", "t", max_messages=2, invisible_ms=1000)
    pop._append = works
    pop.receive("g", "t", max_messages=1, invisible_ms=1000)
    later = Pop(store, at_once(store))
    clock.now += 1000
    received = [bodies(later.receive("g", "t", max_messages=1)) for _ in range(4)]
    assert [found for found in received if found] == [[b"0"], [b"2"]]


@pytest.fixture
def waiting(store):
    """A Pop with blocked appends, and the function that completes them or makes them fail."""
    pop = popped(store)
    pop._commit = pop._save = lambda: None  # Both wait for their appends.
    appends, puts = at_once(store), []

    def put(records):
        puts.append((records, Future()))
        return puts[-1][1]

    def end(error=None, status=SendStatus.SEND_OK):
        while puts:
            records, done = puts.pop(0)
            if error:
                done.set_exception(error)
            else:
                done.set_result(replace(appends(records).result(), status=status))

    pop._append = put
    return pop, end


FULL = StoreFailedError("disk full")
MINUTE = 60_000


def received_one(store, pop, end):
    sent(store, 2)
    received = pop.receive("g", "t", max_messages=1)
    end()
    return received


def committed(store, pop, end):
    """Return the committed offset after the pending appends have completed."""
    pop._append, puts = at_once(store), pop._append
    pop._keeper.save_all(pop._states.all())
    pop._append = puts
    return store.groups.committed("g", "t")[0]


def test_an_ack_takes_effect_when_it_is_appended(store, clock, waiting):
    pop, end = waiting
    received = received_one(store, pop, end)
    pop.ack("g", "t", handles(received))
    assert committed(store, pop, end) == 0
    assert acked_later(pop, received) == (True,), (
        "a repeated ack is valid while the first one is pending"
    )
    end(FULL)
    assert committed(store, pop, end) == 0
    assert acked_later(pop, received) == (True,), "a repeated ack is valid after a failed ack"
    end()
    assert committed(store, pop, end) == 1
    assert acked_later(pop, received) == (False,)


def acked_later(pop, received):
    return pop.ack("g", "t", handles(received)).valid


def test_a_message_whose_ack_fails_is_received_again(store, clock, waiting):
    pop, end = waiting
    received = received_one(store, pop, end)
    pop.ack("g", "t", handles(received))
    clock.now += MINUTE - 1
    assert [one.message.body for one in pop.receive("g", "t").messages] == [b"1"]
    end(FULL)
    clock.now += 1
    assert b"0" in [one.message.body for one in pop.receive("g", "t").messages]


def test_a_message_is_not_changed_while_its_ack_is_pending(store, waiting):
    pop, end = waiting
    received = received_one(store, pop, end)
    (handle,) = handles(received)
    pop.ack("g", "t", [handle])
    assert pop.change_invisible("g", "t", handle, 0).handle is None
    assert pop.extend("g", "t", [handle], 0).valid == (False,)
    end()
    assert pop.in_flight("g") == 0


def test_an_ack_that_completes_after_a_reset_has_no_effect(store, clock, waiting):
    pop, end = waiting
    received = received_one(store, pop, end)
    pop.ack("g", "t", handles(received))
    with pop._states.opened("g") as state:
        state.apply(Start("g", "t", 0, 0))
    again = pop.receive("g", "t", max_messages=1)
    end()
    assert pop.in_flight("g") == 1
    assert acked_later(pop, again) == (True,)


@pytest.mark.parametrize("reopen", [False, True])
def test_a_dead_letter_that_cannot_be_appended_is_received_again(store, clock, waiting, reopen):
    pop, end = waiting
    received = received_one(store, pop, end)
    (handle,) = handles(received)
    first, second = (pop.forward_to_dlq("g", "t", handle) for _ in range(2))
    assert first.stored is second.stored, "only one copy is made"
    end(FULL)
    assert store.max_offset("%DLQ%g", 0) == 0
    if reopen:
        pop = Pop(store, at_once(store))
    clock.now += MINUTE
    assert attempts_later(pop)[b"0"] == 2


def attempts_later(pop):
    return {one.message.body: one.attempt for one in pop.receive("g", "t").messages}


@pytest.mark.parametrize(("retries", "topic"), [(0, "%DLQ%g"), (9, "%RETRY%g")])
def test_a_sweep_whose_append_fails_moves_the_messages_later(
    store, clock, waiting, caplog, retries, topic
):
    pop, end = waiting
    store.groups.update("g", retry_max_times=retries)
    sent(store, 2)
    for _ in range(3):
        pop.receive("g", "t", invisible_ms=10_000)
        end()
        clock.now += 10_000
    pop.sweep()
    end(FULL)
    assert "disk full" in caplog.text
    assert store.max_offset(topic, 0) == 0
    assert committed(store, pop, end) == 0
    clock.now += MINUTE
    pop.sweep()
    end()
    store.deliver_due()
    clock.now += MINUTE
    store.deliver_due()
    assert store.max_offset(topic, 0) == 2
    assert committed(store, pop, end) == 2


def test_an_expired_handle_is_invalid_while_the_append_of_a_sweep_is_pending(store, clock, waiting):
    pop, end = waiting
    store.groups.update("g", retry_max_times=0)
    received = received_one(store, pop, end)
    (handle,) = handles(received)
    clock.now += MINUTE
    assert pop.sweep().dead == 1
    for _ in range(2):
        assert pop.ack("g", "t", [handle]).valid == (False,)
        assert pop.forward_to_dlq("g", "t", handle).valid == (False,)
        end(status=SendStatus.FLUSH_DISK_TIMEOUT)


def test_a_snapshot_waits_for_pending_acks(store, waiting):
    pop, end = waiting
    received = received_one(store, pop, end)
    pop.ack("g", "t", handles(received))
    thread = threading.Thread(target=pop.snapshot)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    while thread.is_alive():
        end()
        thread.join(0.01)
    assert Pop(store, at_once(store)).in_flight("g") == 0


@pytest.mark.parametrize(
    "end_it",
    [
        lambda pop, handle: pop.ack("g", "t", [handle]),
        lambda pop, handle: pop.forward_to_dlq("g", "t", handle),
    ],
)
def test_an_ack_whose_flush_timed_out_can_be_repeated(store, waiting, end_it):
    pop, end = waiting
    (handle,) = handles(received_one(store, pop, end))
    for status in (
        SendStatus.FLUSH_DISK_TIMEOUT,
        SendStatus.FLUSH_DISK_TIMEOUT,
        SendStatus.SEND_OK,
    ):
        done = end_it(pop, handle)
        assert done.valid == (True,)
        end(status=status)
        assert done.stored.result().status is status
        assert pop.in_flight("g") == 0
    assert end_it(pop, handle).valid == (False,)
    assert committed(store, pop, end) == 1
    if "%DLQ%g" in store.topics.all():
        assert store.max_offset("%DLQ%g", 0) == 1


def test_a_sweep_survives_a_full_disk(store, monkeypatch, clock, caplog):
    pop = popped(store)
    store.groups.update("g", retry_max_times=0)
    sent(store, 1)
    pop.receive("g", "t", invisible_ms=10_000)
    clock.now += 10_000
    works = pop._append

    def full(records):
        raise BrokerBusyError("full", remedy="wait")

    pop._append = full
    monkeypatch.setattr(pop._mover, "_put", lambda *given: full(given))
    assert pop.sweep().dead == 0
    assert "moving messages of group" in caplog.text
    monkeypatch.undo()
    pop._append = works
    assert pop.sweep().dead == 1
