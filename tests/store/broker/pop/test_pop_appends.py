"""Appends of changes: with the broker's append thread, refused, and failed."""

import threading
from concurrent.futures import Future

import pytest
from pyrocket.broker.append_queue import AppendQueue
from pyrocket.broker.pop.pop import Pop
from pyrocket.errors import BrokerBusyError, StoreFailedError
from support.pops import acked, at_once, attempts, bodies, handles, popped, sent


@pytest.fixture
def store(open_store):
    store = open_store()
    store.topics.create("t", read_queues=2, write_queues=2)
    store.groups.create("g")
    return store


def test_threads_share_the_messages(store):
    queue = AppendQueue(store.sink.receiver.append)
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


def test_a_refused_append_changes_nothing(store):
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


def test_a_failed_append_is_told_and_its_messages_are_received_again(store, clock):
    pop = popped(store)
    sent(store, 3)

    def fails(records):
        failed = Future()
        failed.set_exception(StoreFailedError("fsync"))
        return failed

    works, pop._append = pop._append, fails
    received = pop.receive("g", "t", max_messages=2, invisible_ms=10_000)
    with pytest.raises(StoreFailedError):
        received.stored.result(0)
    pop._append = works
    assert bodies(pop.receive("g", "t")) == [b"2"]
    later = Pop(store, at_once(store))
    clock.now += 10_000
    assert {*attempts(later.receive("g", "t"))} >= {b"0", b"1"}


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
    assert "are moved later" in caplog.text
    monkeypatch.undo()
    pop._append = works
    assert pop.sweep().dead == 1
