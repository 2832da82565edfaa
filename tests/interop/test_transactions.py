"""Transactions started by one side and ended by the other."""

import pytest
from interop.compare import all_bodies, assert_same, of_java
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from interop.workload import HALF, OPS, name_transaction_topics, steady, wait_until
from pyrocket import Store
from pyrocket.base.clock import system_clock
from support.halves import COMMIT, MINUTE, ROLLBACK, UNKNOWN, Held, Listener, producer
from support.stores import FakeClock, message

GROUP = "payers"
CHECKS = {
    "transactionCheckInterval": 2000,
    "transactionTimeOut": 500,
    "transactionCheckMax": 1000,
    # RocketMQ 5 collects decisions for three seconds, and would check again in the meantime.
    "transactionOpBatchInterval": 100,
}
BILLS = [("bills", 0)]
ANSWERS = {b"paid": COMMIT, b"broke": ROLLBACK}


def decide(message, arg=None):
    return ANSWERS.get(message.body, UNKNOWN)


def asked_by_java(java, count, state="COMMIT_MESSAGE", seconds=6):
    """Return the bodies that a broker checks with a producer of the group; the producer answers
    `state`.
    """
    found = java.peer.ask(
        "checks", topic="bills", group=GROUP, state=state, count=count, seconds=seconds
    )
    return sorted(of_java(one)["body"] for one in found)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "unclean"])
@pytest.mark.parametrize("held", [False, True], ids=["alone", "behind-another-group"])
def test_a_broker_checks_exactly_the_half_messages_undecided_in_pyrocket(
    java, store_path, clean, held
):
    """pyrocket has already re-appended some half messages; with `held`, the half cursor stays
    before them, at a message of another group.
    """
    clock = FakeClock(system_clock() - 10 * MINUTE)
    with_ours = Store.open(store_path, create=True, config=SIZES, clock=clock)
    with_ours.topics.create("bills", read_queues=1, write_queues=1)
    ours = Held(with_ours)
    if held:
        with producer(ours, "others", Listener(UNKNOWN)) as other:
            other.send(message(b"theirs", "bills"))
    with producer(ours, GROUP, Listener(decide, decide)) as one:
        for body in (b"first", b"paid", b"second", b"broke", b"paid"):
            one.send(message(body, "bills"))
        clock.now += MINUTE
        assert one.check_now() == 2
        one.send(message(b"third", "bills"))
    pending = ours.transactions.pending()
    assert len(pending) == 3 + held
    with_ours.close(clean=clean)

    with java.broker(store_path, **SMALL, **CHECKS) as broker:
        expected = [b"first", b"second", b"third"]
        assert asked_by_java(java, 3) == expected
        wait_until(lambda: len(all_bodies(broker.pull(BILLS), "bills")) == 5)
        assert asked_by_java(java, 1) == [], "a half message is still undecided after the answer"
        pulled = broker.pull(BILLS)
        broker.stop()
    assert sorted(all_bodies(pulled, "bills")) == sorted([b"paid", b"paid", *expected])
    assert_same(store_path, pulled)
    with Store.open(store_path) as store:
        left = Held(store).transactions.pending()
        assert [half.group for half in left] == ["others"] * held


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_pyrocket_checks_exactly_the_half_messages_undecided_at_a_broker(java, store_path, ending):
    name_transaction_topics(store_path)
    states = ["COMMIT_MESSAGE", "UNKNOW", "ROLLBACK_MESSAGE", "UNKNOW"]
    messages = [
        outgoing(b"%s%d" % (state.encode(), n), keys=f"k{n}", tags="P", state=state)
        for n, state in enumerate(states)
    ]
    with java.broker(store_path, **SMALL) as broker:
        java.peer.ask("transaction", topic="bills", group=GROUP, messages=messages)

        def decided():
            named = b",".join(all_bodies(broker.pull(), OPS)).split(b",")
            return len([one for one in named if one]) == 2

        wait_until(decided)
        getattr(broker, ending)()

    clock = FakeClock(system_clock() + MINUTE)
    with Store.open(store_path, clock=clock) as store:
        ours = Held(store)
        listener = Listener(UNKNOWN, lambda message: COMMIT if message.body[-1:] == b"1" else None)
        with producer(ours, GROUP, listener) as one:
            assert one.check_now() == 2
            assert [seen.body for seen in listener.checked] == [b"UNKNOW1", b"UNKNOW3"]
            assert {(seen.topic, seen.tags) for seen in listener.checked} == {("bills", "P")}
            (left,) = ours.transactions.pending()
            assert left.checks == 1
            clock.now += MINUTE
            listener.answer = COMMIT
            assert one.check_now() == 1
        assert ours.transactions.pending() == []

    with java.broker(store_path, **SMALL, **CHECKS) as broker:
        assert asked_by_java(java, 1) == []
        pulled = steady(broker)
    assert sorted(all_bodies(pulled, "bills")) == [b"COMMIT_MESSAGE0", b"UNKNOW1", b"UNKNOW3"]
    assert len(all_bodies(pulled, HALF)) == 7
    assert_same(store_path, pulled)


def test_a_broker_continues_with_pyrockets_immune_messages(java, store_path):
    """The messages were re-appended with their first offset, which no op message may contain."""
    clock = FakeClock(system_clock() - 2 * MINUTE)
    with Store.open(store_path, create=True, config=SIZES, clock=clock) as store:
        store.topics.create("bills", read_queues=1, write_queues=1)
        with producer(Held(store), GROUP, Listener(decide, decide)) as one:
            one.send(message(b"immune", "bills"), immunity_s=3600)
            one.send(message(b"soon", "bills"), immunity_s=90)
            clock.now += MINUTE
            assert one.check_now() == 0
            assert len(Held(store).transactions.pending()) == 2
    with java.broker(store_path, **SMALL, **CHECKS) as broker:
        assert asked_by_java(java, 2) == [b"soon"]
        broker.stop()
    with Store.open(store_path) as store:
        (left,) = Held(store).transactions.pending()
        assert (left.immune_s, left.prepared) == (3600, 0)
