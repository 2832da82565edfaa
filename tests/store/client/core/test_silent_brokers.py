"""A broker that does not answer delays only what concerns its own queues."""

import asyncio

import pytest
from support.core_consumers import Listener, consumer
from support.simulated_loop import simulated


def of(listener, orders, broker):
    """Return how many messages of a broker's queues a listener got."""
    return sum(body.startswith(b"%s" % broker.encode()) for body in listener.bodies)


def two_brokers(cluster):
    orders = cluster(queues=1, messages=0, brokers=("a", "b"))
    for queue in orders.queues["orders"]:
        for number in range(5):
            orders.append(queue, b"%s-%d" % (queue.broker.encode(), number))
    return orders


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_a_consumer_starts_and_consumes_while_a_broker_hangs(cluster, orderly):
    orders, listener = two_brokers(cluster), Listener()
    orders.brokers["b"].hangs = True
    core, loop = consumer(orders, listener, orderly=orderly), asyncio.get_running_loop()
    began_s = loop.time()
    await core.start()
    assert loop.time() - began_s < 10
    await asyncio.sleep(10)
    assert (of(listener, orders, "a"), of(listener, orders, "b")) == (5, 0)
    orders.brokers["b"].resume()
    await asyncio.sleep(60)
    assert (of(listener, orders, "a"), of(listener, orders, "b")) == (5, 5)
    await core.stop()


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_a_stop_does_not_wait_long_for_a_broker_that_hangs(cluster, orderly):
    orders, listener = two_brokers(cluster), Listener()
    core, loop = consumer(orders, listener, orderly=orderly), asyncio.get_running_loop()
    await core.start()
    await asyncio.sleep(30)
    orders.brokers["b"].hangs = True
    began_s = loop.time()
    await core.stop()
    assert loop.time() - began_s < 6
    assert not orders.members("a", "billing")


@pytest.mark.parametrize("orderly", [False, True])
@simulated
async def test_members_take_queues_of_other_brokers_while_one_hangs(cluster, orderly):
    orders = two_brokers(cluster)
    first, second = Listener(), Listener()
    cores = [
        consumer(orders, one, name, orderly=orderly)
        for name, one in (("c1", first), ("c2", second))
    ]
    await cores[0].start()
    await asyncio.sleep(30)
    orders.brokers["b"].hangs = True
    await cores[1].start()
    await asyncio.sleep(45)
    orders.append(orders.queues["orders"][0], b"a-new")
    await asyncio.sleep(20)
    assert (first.bodies + second.bodies).count(b"a-new") == 1
    owners = [
        name
        for name, core in zip("12", cores, strict=True)
        if orders.queues["orders"][0] in core.held
    ]
    assert len(owners) == 1
    orders.brokers["b"].resume()
    for core in cores:
        await core.stop()
