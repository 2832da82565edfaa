"""A background thread delivers timers on time, measured by the machine's clock."""

import time
from statistics import median

import pytest
from pyrocket import Message, Store
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
            deadline = time.monotonic() + 20
            while store.max_offset("t", 0) < COUNT:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        delivered = store.read("t", 0, 0, COUNT)
        late = [one.store_timestamp - dues[int(one.body)] for one in delivered]
    assert min(late) >= 0, "a timer was delivered early"
    assert median(late) < 200
