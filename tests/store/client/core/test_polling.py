"""The core of a pull consumer, against a simulated network."""

import asyncio
from random import Random

import pytest
from pyrocket.client.config import ConsumerConfig
from pyrocket.client.consume_from import ConsumeFrom
from pyrocket.client.core.offsets import BrokerOffsets
from pyrocket.client.core.polling import PollingCore
from pyrocket.client.transport import Member
from pyrocket.errors import InvalidInputError
from support.simulated_brokers import Network
from support.simulated_loop import simulated


async def polling(orders, **changes):
    network, member = Network(orders, Random(1)), Member("c1", "i1")
    config = ConsumerConfig(group="billing", **{"consume_from": ConsumeFrom.FIRST, **changes})
    offsets = BrokerOffsets(network, "billing", member)
    return PollingCore(config, member, network, offsets, timestamp_ms=0)


async def poll_all(core):
    found = []
    while messages := await core.poll(1, 10):
        found.append([message.body for message in messages])
    return found


@simulated
async def test_each_poll_returns_messages_of_one_queue_in_turn(cluster):
    orders = cluster(messages=3)
    core = await polling(orders)
    await core.assign(orders.queues["orders"])
    assert core.assigned == orders.queues["orders"]
    assert sorted(await poll_all(core)) == [[b"0-0", b"0-1", b"0-2"], [b"1-0", b"1-1", b"1-2"]]
    await core.close()


@simulated
async def test_a_poll_returns_at_most_the_given_number_of_messages(cluster):
    orders = cluster(queues=1, messages=3)
    core = await polling(orders)
    await core.assign(orders.queues["orders"])
    assert [len(await core.poll(1, 2)), len(await core.poll(1, 2))] == [2, 1]
    await core.close()


@simulated
async def test_a_poll_returns_as_soon_as_a_message_arrives_and_else_after_its_timeout(cluster):
    orders = cluster(queues=1, messages=0)
    (queue,) = orders.queues["orders"]
    core = await polling(orders)
    await core.assign([queue])
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await core.poll(5, 10) == []
    assert loop.time() - began == pytest.approx(5)
    loop.call_later(2, orders.append, queue, b"new")
    began = loop.time()
    assert [message.body for message in await core.poll(60, 10)] == [b"new"]
    assert loop.time() - began < 5
    await core.close()


@simulated
async def test_positions_are_committed_and_another_consumer_continues_there(cluster):
    orders = cluster(queues=1, messages=3)
    (queue,) = orders.queues["orders"]
    core = await polling(orders)
    await core.assign([queue])
    await core.poll(1, 2)
    assert core.position(queue) == 2
    committed = await core.commit()
    assert (committed[queue].minimum, committed[queue].maximum) == (0, 3)
    assert committed[queue].next_offset == 2
    await core.close()
    other = await polling(orders)
    await other.assign([queue])
    assert await poll_all(other) == [[b"0-2"]]
    await other.close()


@simulated
async def test_a_position_outside_the_queue_is_corrected(cluster):
    orders = cluster(queues=1, messages=3)
    (queue,) = orders.queues["orders"]
    orders.delete_topic("orders")
    orders.create_topic("orders", 1)
    orders.append(queue, b"first")
    core = await polling(orders)
    await core.assign([queue])
    core.seek(queue, 2)
    assert await poll_all(core) == [[b"first"]]
    assert core.position(queue) == 4
    await core.close()


@simulated
async def test_paused_queues_are_not_polled_until_they_are_resumed(cluster):
    orders = cluster(messages=3)
    first, second = orders.queues["orders"]
    core = await polling(orders)
    await core.assign([first, second])
    core.pause([first])
    assert await poll_all(core) == [[b"1-0", b"1-1", b"1-2"]]
    core.resume([first])
    assert await poll_all(core) == [[b"0-0", b"0-1", b"0-2"]]
    await core.close()


@simulated
async def test_a_pause_ends_with_the_assignment_and_outlives_a_seek(cluster):
    orders = cluster(messages=3)
    first, second = orders.queues["orders"]
    core = await polling(orders)
    await core.assign([first, second])
    core.pause([first, second])
    core.seek(second, 1)
    await core.assign([second])
    await core.assign([first, second])
    assert await poll_all(core) == [[b"0-0", b"0-1", b"0-2"]]
    core.resume([second])
    assert await poll_all(core) == [[b"1-1", b"1-2"]]
    await core.close()


@simulated
async def test_messages_after_the_first_assignment_are_not_skipped(cluster):
    orders = cluster(queues=1, messages=3)
    first = await polling(orders, consume_from="last")
    await first.assign(orders.queues["orders"])
    await first.close()
    orders.append(orders.queues["orders"][0], b"new")
    orders.add_queue("orders", "a")
    orders.append(orders.queues["orders"][1], b"of a new queue")
    second = await polling(orders, consume_from="last")
    await second.assign(orders.queues["orders"])
    assert sorted(await poll_all(second)) == [[b"new"], [b"of a new queue"]]
    await second.close()


@simulated
async def test_a_new_assignment_keeps_the_positions_of_its_queues(cluster):
    orders = cluster(messages=3)
    first, second = orders.queues["orders"]
    core = await polling(orders)
    await core.assign([first])
    await core.poll(1, 2)
    await core.assign([first, second])
    assert (core.position(first), core.position(second)) == (2, 0)
    await core.assign([second])
    assert core.assigned == [second]
    await core.close()


@simulated
async def test_a_queue_that_is_not_assigned_is_an_error(cluster):
    orders = cluster(messages=3)
    core = await polling(orders)
    for call in (
        core.position,
        lambda queue: core.seek(queue, 0),
        lambda queue: core.pause([queue]),
    ):
        with pytest.raises(InvalidInputError) as caught:
            call(orders.queues["orders"][0])
        assert caught.value.code == "QUEUE_NOT_ASSIGNED"
    await core.close()


@pytest.mark.parametrize(("start", "messages"), [("first", 3), ("last", 0), ("timestamp", 3)])
@simulated
async def test_a_group_without_offsets_starts_where_the_configuration_says(
    cluster, start, messages
):
    orders = cluster(queues=1, messages=3)
    core = await polling(orders, consume_from=start)
    await core.assign(orders.queues["orders"])
    assert sum(map(len, await poll_all(core))) == messages
    await core.close()
