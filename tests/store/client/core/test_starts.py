"""Where a group starts: nothing that is stored after its first contact with a topic is skipped."""

import asyncio
from datetime import datetime, timezone

import pytest
from pyrocket.client.consume_from import ConsumeFrom
from support.core_consumers import Listener, committed, consumed, consumer, kill
from support.simulated_brokers import Network
from support.simulated_loop import START_S, simulated

LAST = {"consume_from": ConsumeFrom.LAST}


def send(orders, *bodies, queue=0):
    for body in bodies:
        orders.append(orders.queues["orders"][queue], body)


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_members_that_are_killed_before_their_first_commit_skip_nothing(cluster, orderly):
    orders, listeners = cluster(queues=2, messages=3), []
    for number in range(3):
        listeners.append(Listener(seconds=1000))
        killed = consumer(orders, listeners[-1], f"c{number}", orderly=orderly, **LAST)
        await killed.start()
        send(orders, b"%d" % number, queue=number % 2)
        await asyncio.sleep(4)
        await kill(killed)
    last = Listener()
    await consumed(consumer(orders, last, "last", orderly=orderly, **LAST), seconds=300)
    assert sorted(last.bodies) == [b"0", b"1", b"2"]


@simulated
async def test_queues_that_are_added_are_consumed_from_their_first_message(cluster):
    orders, listener = cluster(queues=2, messages=5), Listener()
    core = consumer(orders, listener, **LAST)
    await core.start()
    orders.add_queue("orders", "a")
    send(orders, b"new", queue=2)
    await asyncio.sleep(60)
    assert listener.bodies == [b"new"]
    assert committed(orders) == {2: 1}
    await core.stop()


@simulated
async def test_a_group_that_has_consumed_nothing_continues_where_it_started(cluster):
    orders, listener = cluster(queues=1, messages=5), Listener()
    await consumed(consumer(orders, Listener(), **LAST), seconds=6)
    assert not committed(orders)
    send(orders, b"1", b"2")
    await consumed(consumer(orders, listener, "c2", **LAST))
    assert listener.bodies == [b"1", b"2"]


@simulated
async def test_a_topic_that_appears_or_is_created_again_is_consumed_from_its_first_message(cluster):
    orders, listener = cluster(queues=1, messages=0), Listener()
    orders.delete_topic("orders")
    core = consumer(orders, listener, **LAST)
    await core.start()
    for body in (b"first", b"again"):
        orders.create_topic("orders", 1)
        send(orders, body)
        await asyncio.sleep(60)
        orders.delete_topic("orders")
        await asyncio.sleep(60)
    assert listener.bodies == [b"first", b"again"]
    await core.stop()


@simulated
async def test_a_topic_that_is_subscribed_later_starts_at_that_time(cluster):
    orders, listener = cluster(queues=1, messages=5), Listener()
    core = consumer(orders, listener, subscriptions={"orders": "*"}, **LAST)
    orders.create_topic("bills", 1)
    (bills,) = orders.queues["bills"]
    orders.append(bills, b"before")
    await core.start()
    await core.subscribe("bills", core._subscriptions["orders"])
    await asyncio.sleep(1)
    orders.append(bills, b"after")
    await asyncio.sleep(60)
    assert listener.bodies == [b"after"]
    await core.stop()


@simulated
async def test_a_broker_that_the_group_meets_later_starts_at_the_time_of_the_first_one(cluster):
    orders, listener = cluster(queues=1, messages=5), Listener()
    core = consumer(orders, listener, **LAST)
    await core.start()
    await asyncio.sleep(100)
    orders.add_broker("b", {"orders": 1})
    send(orders, b"at b", queue=1)
    await asyncio.sleep(100)
    assert listener.bodies == [b"at b"]
    began_ms = 1000 * START_S
    start = orders.starts("b", "billing")["orders"]
    assert (start.log_offset, start.time_ms) == (None, began_ms - 60_000)
    await core.stop()


@simulated
async def test_a_broker_that_the_group_meets_after_a_clock_was_set_back_skips_nothing(cluster):
    orders, listener = cluster(queues=1, messages=5), Listener()
    core = consumer(orders, listener, **LAST)
    await core.start()
    orders.brokers["a"].clock_ahead_ms -= 3_600_000
    await core.stop()
    orders.add_broker("b", {"orders": 1})
    core = consumer(orders, listener, **LAST)
    await core.start()
    await asyncio.sleep(30)
    orders.add_queue("orders", "b")
    send(orders, b"at b", queue=2)
    await asyncio.sleep(100)
    assert listener.bodies == [b"at b"]
    await core.stop()


@simulated
async def test_a_broker_that_is_slow_at_first_starts_with_the_others(cluster, monkeypatch):
    """It has said that it does not know the group, and gets the first heartbeat late."""
    heartbeat = Network.heartbeat

    async def late(self, broker, beat):
        await asyncio.sleep(5 if broker == "b" else 0)
        return await heartbeat(self, broker, beat)

    monkeypatch.setattr(Network, "heartbeat", late)
    orders, listener = cluster(queues=1, messages=5, brokers=("a", "b")), Listener()
    core = consumer(orders, listener, **LAST)
    await asyncio.sleep(10)
    starting = asyncio.ensure_future(core.start())
    await asyncio.sleep(4)
    assert not orders.starts("b", "billing")
    send(orders, b"at b", queue=1)
    await starting
    await asyncio.sleep(60)
    assert listener.bodies == [b"at b"]
    await core.stop()


@simulated
async def test_messages_are_consumed_although_the_clock_of_their_broker_was_set_back(cluster):
    orders, listener = cluster(queues=1, messages=0), Listener()
    at = datetime.fromtimestamp(START_S - 60, timezone.utc)
    where = {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp": at}
    core = consumer(orders, listener, **where)
    await core.start()
    orders.brokers["a"].clock_ahead_ms -= 3_600_000
    orders.add_queue("orders", "a")
    send(orders, b"new", queue=1)
    await asyncio.sleep(60)
    assert listener.bodies == [b"new"]
    await core.stop()


@simulated
async def test_the_first_start_counts_whatever_later_members_say(cluster):
    orders, listener = cluster(queues=1, messages=2), Listener()
    await kill_after_start(consumer(orders, Listener(seconds=1000), consume_from="first"))
    await consumed(consumer(orders, listener, "c2", **LAST), seconds=300)
    assert listener.bodies == [b"0-0", b"0-1"]


async def kill_after_start(core):
    await core.start()
    await kill(core)


@simulated
async def test_nothing_is_committed_before_it_was_consumed(cluster):
    orders = cluster(queues=1, messages=3)
    core = consumer(orders, Listener(seconds=1000))
    await core.start()
    await asyncio.sleep(100)
    assert not committed(orders)
    await kill(core)
