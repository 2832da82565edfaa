"""A background thread delivers timers on time, measured by the machine's clock."""

import time
from dataclasses import replace
from statistics import median

import pytest
from pyrocket import Message, Store
from support.name_server import wait_until
from support.stores import SMALL

COUNT = 40


@pytest.mark.alone
def test_timers_of_three_seconds_are_delivered_within_milliseconds(path):
    with Store.open(path, create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        dues = []
        with store.run_services():
            for number in range(COUNT):
                dues.append(time.time_ns() // 1_000_000 + 3000 + number % 7)
                store.append(Message(topic="t", body=b"%d" % number, deliver_at_ms=dues[-1]))
                time.sleep(0.01)
            wait_until(lambda: store.max_offset("t", 0) >= COUNT, 20)
        delivered = store.read("t", 0, 0, COUNT)
        late = [one.store_timestamp - dues[int(one.body)] for one in delivered]
    assert min(late) >= 0, "a timer was delivered early"
    assert median(late) < 200


def test_an_append_wakes_the_thread_of_a_store_without_other_writers(path, monkeypatch):
    """The thread would find appends of other processes only after a long time."""
    monkeypatch.setattr("pyrocket.engine.service_runner.ALONE_POLL_MS", 120_000)
    with Store.open(path, create=True, config=replace(SMALL, exclusive=True)) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        began = time.monotonic()
        with store.run_services():
            for number in range(3):
                time.sleep(0.2)
                due = time.time_ns() // 1_000_000 + 300
                store.append(Message(topic="t", body=b"x", deliver_at_ms=due))
                while store.max_offset("t", 0) <= number:
                    assert time.monotonic() - began < 60
                    time.sleep(0.01)
