"""A queue was truncated, and its offsets are those of other messages now: no consumer skips them.

The broker has lost the end of its log, or a replica was promoted that lacks it.
"""

import asyncio

import pytest
from store.client.core.test_polling import poll_all, polling
from support.core_consumers import Listener, committed, consumer
from support.simulated_loop import simulated

NEW = [b"new %d" % number for number in range(8)]


def truncate(orders, end=6):
    """Cut the queue off at an offset, and append more messages than were cut off."""
    (queue,) = orders.queues["orders"]
    orders.truncate(queue, end)
    for body in NEW:
        orders.append(queue, body)
    return queue


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("seconds", [0, 20])
def test_a_group_consumes_the_messages_at_offsets_that_it_has_read_before(
    cluster, orderly, seconds
):
    @simulated
    async def run():
        orders, listener = cluster(queues=1, messages=10), Listener(seconds=seconds)
        core = consumer(orders, listener, orderly=orderly, consume_message_batch_max_size=10)
        await core.start()
        await asyncio.sleep(3)
        truncate(orders)
        await asyncio.sleep(200)
        assert {*NEW} <= {*listener.bodies}
        assert listener.bodies[:10] == [b"0-%d" % number for number in range(10)]
        assert committed(orders) == {0: 14}
        await core.stop()

    run()


@simulated
async def test_messages_that_wait_when_the_queue_is_truncated_are_consumed_or_read_again(cluster):
    orders, listener = cluster(queues=1, messages=10), Listener(seconds=30)
    core = consumer(orders, listener, orderly=True, pull_batch_size=2)
    await core.start()
    await asyncio.sleep(3)
    truncate(orders)
    await asyncio.sleep(1000)
    assert {*listener.bodies} >= {*NEW, *(b"0-%d" % number for number in range(6))}
    assert committed(orders) == {0: 14}
    await core.stop()


@simulated
async def test_polls_return_the_messages_at_offsets_that_were_polled_before(cluster):
    orders = cluster(queues=1, messages=10)
    core = await polling(orders)
    await core.assign(orders.queues["orders"])
    assert [len(bodies) for bodies in await poll_all(core)] == [10]
    queue = truncate(orders)
    await asyncio.sleep(20)
    assert [body for bodies in await poll_all(core) for body in bodies] == NEW
    await core.commit()
    assert committed(orders) == {0: 14}
    assert core.position(queue) == 14
    await core.close()


@simulated
async def test_messages_that_were_pulled_ahead_of_polls_are_polled(cluster):
    orders = cluster(queues=1, messages=10)
    core = await polling(orders)
    await core.assign(orders.queues["orders"])
    polled = [message.body for message in await core.poll(1, 2)]
    truncate(orders)
    await asyncio.sleep(20)
    polled += [body for bodies in await poll_all(core) for body in bodies]
    assert polled == [*(b"0-%d" % number for number in range(6)), *NEW]
    await core.close()


@simulated
async def test_a_commit_of_messages_that_were_cut_off_does_not_skip_new_ones(cluster):
    """The caller commits what it polled before the truncation, after the position was moved."""
    orders = cluster(queues=1, messages=10)
    core = await polling(orders)
    await core.assign(orders.queues["orders"])
    await poll_all(core)
    queue = truncate(orders)
    for _ in range(2):  # Before and after the next pull.
        reply = await core.commit({queue: 10})
        assert reply[queue].next_offset == committed(orders)[0] == 6
        await asyncio.sleep(20)
    await core.close()
