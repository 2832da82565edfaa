"""Timers: a RocketMQ 5 broker delivers pyrocket's pending timers, and pyrocket the broker's, each
once.
"""

import time

import pytest
from interop.compare import bodies
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from interop.workload import wait_until
from pyrocket import Message, Store
from support.inner import inner
from support.stores import FakeClock

HOUR, DAY = 3_600_000, 86_400_000


@pytest.fixture
def java5(java):
    if not java.is_5:
        pytest.skip("RocketMQ 4 does not support timers")
    return java


def open_store(path, **options):
    store = Store.open(path, create=True, config=SIZES, **options)
    store.topics.create("t", read_queues=1, write_queues=1)
    return store


def send(store, body, after_ms):
    due = int(time.time() * 1000) + after_ms
    return store.append(Message(topic="t", body=body, queue_id=0, deliver_at_ms=due))


def drained(store):
    while store.deliver_due():
        pass
    known = store.offsets("t")[0]
    return [one.body for one in store.read("t", 0, known.minimum, known.maximum)]


def arrived(broker, wanted):
    return lambda: set(wanted) <= set(bodies(broker.pull([("t", 0)]), "t")[0])


def everything_later(path):
    """Deliver all timers, and return all messages of topic t."""
    later = FakeClock(int(time.time() * 1000) + 40 * DAY)
    with Store.open(path, clock=later) as store:
        return sorted(drained(store))


def test_a_broker_delivers_pyrockets_pending_timers(java5, store_path):
    with open_store(store_path) as store:
        send(store, b"month", 30 * DAY)
        gone = send(store, b"gone", 4000)
        send(store, b"before", 30)
        time.sleep(0.05)
        assert drained(store) == [b"before"]
        assert store.timers.cancel("t", gone.msg_id)
        send(store, b"overdue", 100)
        send(store, b"soon", 3500)
        send(store, b"hour", HOUR)
        send(store, b"after", 50)
        inner(store).services.runner.stop()
        time.sleep(0.2)
        delivered = drained(store)
    with java5.broker(store_path, **SMALL) as broker:
        start = time.time()
        wait_until(arrived(broker, [b"overdue", b"soon"]))
        java5.peer.send("t", [outgoing(b"now"), _timer(b"of java", 1500)])
        wait_until(arrived(broker, [b"now", b"of java"]))
        time.sleep(max(0, 6 - (time.time() - start)))
        found = bodies(broker.pull([("t", 0)]), "t")[0]
        assert sorted(found) == sorted({*delivered, b"soon", b"now", b"of java"})
        broker.stop()
    with Store.open(store_path) as store:
        assert sorted(drained(store)) == sorted(found)
        assert store.timers.count() == 2
    assert everything_later(store_path) == sorted([*found, b"hour", b"month"])


def test_a_broker_repeats_no_delivery_even_if_another_timer_is_hours_late(java5, store_path):
    """The broker starts delivering at the second in which the oldest overdue timer was due."""
    clock = FakeClock(int(time.time() * 1000) - 4 * HOUR)
    with open_store(store_path, clock=clock) as store:
        for body, after_ms in ((b"late", 2 * HOUR), (b"delivered", 1)):
            due = clock.now + after_ms
            store.append(Message(topic="t", body=body, queue_id=0, deliver_at_ms=due))
        clock.now += 1
        assert drained(store) == [b"delivered"]
        inner(store).services.runner.stop()
        clock.now += 4 * HOUR
    with java5.broker(store_path, **SMALL) as broker:
        wait_until(arrived(broker, [b"late"]))
        java5.peer.send("t", [_timer(b"last", 1500)])
        wait_until(arrived(broker, [b"last"]))
        assert bodies(broker.pull([("t", 0)]), "t")[0] == [b"delivered", b"late", b"last"]


def _timer(body, after_ms, **own):
    due = int(time.time() * 1000) + after_ms
    return outgoing(body, own={"TIMER_DELIVER_MS": str(due), **own})


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_pyrocket_delivers_the_pending_timers_of_a_broker(java5, store_path, end):
    open_store(store_path).close()
    with java5.broker(store_path, **SMALL, timerMaxDelaySec=10 * 86_400) as broker:
        sent = java5.peer.send(
            "t",
            [
                _timer(b"first", 1500),
                _timer(b"hour", HOUR),
                _timer(b"week", 7 * DAY),
                _timer(b"gone", 2 * HOUR),
                outgoing(b"after", own={"TIMER_DELAY_SEC": "4000"}),
            ],
        )
        wait_until(arrived(broker, [b"first"]))
        time.sleep(2.5)
        getattr(broker, end)()
    assert len(sent) == 5
    with Store.open(store_path) as store:
        assert drained(store) == [b"first"]
        assert store.timers.count() == 4
        assert store.timers.cancel("t", sent[3]["msgId"])
    wanted = sorted([b"first", b"hour", b"week", b"after"])
    assert everything_later(store_path) == wanted


def test_pyrocket_does_not_deliver_a_timer_that_was_cancelled_at_a_broker(java5, store_path):
    open_store(store_path).close()
    with java5.broker(store_path, **SMALL) as broker:
        due = str(int(time.time() * 1000) + HOUR)
        at = {"TIMER_DELIVER_MS": due}
        (sent,) = java5.peer.send("t", [outgoing(b"gone", own=at)])
        own = at | {"TIMER_DEL_UNIQKEY": sent["msgId"]}
        java5.peer.send("t", [outgoing(b"gone", own=own), outgoing(b"kept", own=at)])
        time.sleep(2.5)
        broker.stop()
    assert everything_later(store_path) == [b"kept"]


def test_distant_timers_that_a_broker_has_rolled_are_delivered_once_by_pyrocket(java5, store_path):
    """With a wheel of a few seconds, the broker re-appends timers that are beyond the wheel."""
    with open_store(store_path) as store:
        send(store, b"ours", HOUR)
    with java5.broker(store_path, **SMALL, timerRollWindowSlot=3) as broker:
        java5.peer.send("t", [_timer(b"its", HOUR)])
        time.sleep(7)
        broker.stop()
    with Store.open(store_path) as store:
        assert inner(store).reader.system_offsets("rmq_sys_wheel_timer").maximum > 2, "it rolled"
        assert store.timers.count() == 2
    assert everything_later(store_path) == [b"its", b"ours"]
