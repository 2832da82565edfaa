"""The calls of producers and consumers to a store in the same process."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.base.clock import system_clock
from pyrocket.client.embedded import EmbeddedTransport
from pyrocket.client.outgoing import outgoing
from pyrocket.errors import StoreLockedError, StoreNotFoundError, TopicNotFoundError
from pyrocket.values.consuming import (
    ConsumerData,
    Heartbeat,
    MessageModel,
    Pull,
    PullStatus,
    Subscription,
)
from pyrocket.values.message import Message
from pyrocket.values.transactions import LocalTransactionState


@pytest.fixture
def path(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
    return str(tmp_path / "s")


def run(path, use):
    """Run `use` with a transport, and return its result."""

    async def work():
        transport = await EmbeddedTransport.open(path)
        try:
            return await use(transport)
        finally:
            await transport.close()

    return asyncio.run(work())


def message(body=b"1", name="A" * 32, **fields):
    return outgoing(Message(topic="orders", body=body, **fields), name, 1234)


async def queues(transport, topic="orders"):
    return (await transport.route(topic)).writable


def pull_of(queue, offset=0, hold_ms=0):
    return Pull(queue, "billing", offset, Subscription(), hold_ms=hold_ms)


def beat(client="c1"):
    data = ConsumerData("billing", MessageModel.CLUSTERING, "FIRST", {"orders": Subscription()})
    return Heartbeat(client, f"{client}-incarnation", [data])


def test_the_queues_of_a_topic_are_those_of_the_store(path):
    async def use(transport):
        with pytest.raises(TopicNotFoundError):
            await transport.route("missing")
        assert await transport.brokers() == [(await queues(transport))[0].broker]
        return await transport.route("orders"), await transport.route_if_created("new")

    route, new = run(path, use)
    assert [queue.queue_id for queue in route.readable] == [0, 1]
    assert route.readable == route.writable
    assert len(new.writable) == StoreConfig().default_queues


def test_sent_messages_are_in_the_store_with_their_ids(path):
    long = b"x" * 5000

    async def use(transport):
        queue = (await queues(transport))[1]
        messages = [message(), message(long, "B" * 32, tags="t", keys=["k"])]
        return await transport.send(queue, messages)

    results = run(path, use)
    assert [(one.queue_id, one.queue_offset, one.msg_id) for one in results] == [
        (1, 0, "A" * 32),
        (1, 1, "B" * 32),
    ]
    with Store.open(path, read_only=True) as store:
        stored = [*store.messages("orders", 1)]
        assert [one.body for one in stored] == [b"1", long]
        assert stored[1].physical_offset == results[1].physical_offset
        assert (stored[1].tags, stored[1].keys, stored[1].born_timestamp) == ("t", ("k",), 1234)
        assert stored[1].store_size < 1000


def test_a_missing_topic_is_created_by_the_first_send(path):
    async def use(transport):
        queue = (await transport.route_if_created("new")).writable[3]
        new = outgoing(Message(topic="new", body=b"1"), "A" * 32, 0)
        return await transport.send(queue, [new])

    assert run(path, use)[0].queue_id == 3


@pytest.mark.parametrize(
    ("state", "seen"), [(LocalTransactionState.COMMIT, 1), (LocalTransactionState.ROLLBACK, 0)]
)
def test_a_half_message_is_visible_after_its_commit(path, state, seen):
    async def use(transport):
        queue = (await queues(transport))[1]
        half = await transport.send_half("shop", queue, message())
        before = await transport.bounds(queue)
        await transport.end_transaction(half, state, from_check=False)
        return half, before.maximum, (await transport.bounds(queue)).maximum

    half, before, after = run(path, use)
    assert (half.half.transaction_id, half.message.topic, half.message.queue_id) == (
        "A" * 32,
        "orders",
        1,
    )
    assert (before, after) == (0, seen)


def test_the_group_is_asked_about_an_undecided_message(path):
    async def use(transport):
        asked = asyncio.Queue()
        stop = transport.watch_checks("shop", asked.put_nowait)
        new = replace(message(), born_timestamp=system_clock())
        half = await transport.send_half("shop", (await queues(transport))[0], new, 0)
        found = await asyncio.wait_for(asked.get(), 30)
        await transport.end_transaction(found, LocalTransactionState.COMMIT, from_check=True)
        stop()
        return half, found, await transport.bounds((await queues(transport))[0])

    half, found, bounds = run(path, use)
    assert found.half.transaction_id == half.half.transaction_id
    assert bounds.maximum == 1


def test_a_group_joins_pulls_commits_and_leaves(path):
    async def use(transport):
        (name,), queue = await transport.brokers(), (await queues(transport))[0]
        await transport.send(queue, [message(), message(b"2")])
        changes = asyncio.Queue()
        stop = transport.watch("billing", "c1", changes.put_nowait)
        await transport.heartbeat(name, beat())
        assert (await asyncio.wait_for(changes.get(), 10)).group == "billing"
        assert await transport.members(name, "billing") == ["c1"]
        pulled = await transport.pull(pull_of(queue))
        assert await transport.committed("billing", queue) is None
        done = await transport.commit("billing", "c1", "c1-incarnation", {queue: 1})
        assert await transport.committed("billing", queue) == 1
        await transport.unregister(name, "c1", "billing")
        assert await transport.members(name, "billing") == []
        stop()
        return [one.body for one in pulled.messages], done[queue].next_offset

    assert run(path, use) == ([b"1", b"2"], 1)


def test_queues_are_locked_for_one_member(path):
    async def use(transport):
        (name,), both = await transport.brokers(), await queues(transport)
        await transport.heartbeat(name, beat("c1"))
        assert [*await transport.lock(name, "billing", "c1", both)] == [*both]
        assert not await transport.lock(name, "billing", "c2", both)
        await transport.unlock(name, "billing", "c1", both[:1])
        return [*await transport.lock(name, "billing", "c2", both)] == [both[0]]

    assert run(path, use)


def test_a_pull_waits_for_the_next_message(path):
    async def use(transport):
        (name,), queue = await transport.brokers(), (await queues(transport))[0]
        await transport.heartbeat(name, beat())
        waiting = asyncio.create_task(transport.pull(pull_of(queue, hold_ms=20_000)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await transport.send(queue, [message()])
        return await asyncio.wait_for(waiting, 5)

    assert [one.body for one in run(path, use).messages] == [b"1"]


def test_a_pull_without_messages_ends_after_its_hold(path):
    async def use(transport):
        (name,), queue = await transport.brokers(), (await queues(transport))[0]
        await transport.heartbeat(name, beat())
        began = asyncio.get_running_loop().time()
        pulled = await transport.pull(pull_of(queue, hold_ms=300))
        return pulled.status, asyncio.get_running_loop().time() - began

    status, seconds = run(path, use)
    assert status is PullStatus.NO_NEW_MSG
    assert 0.29 < seconds < 5


def test_a_message_that_is_sent_back_is_in_the_retry_topic_after_its_delay(path):
    async def use(transport):
        (name,), queue = await transport.brokers(), (await queues(transport))[0]
        await transport.send(queue, [message()])
        await transport.heartbeat(name, beat())
        await transport.send_back("billing", queue, 0, 1, -1)
        (retry,) = await queues(transport, "%RETRY%billing")
        pulled = await transport.pull(pull_of(retry, hold_ms=15_000))
        await transport.send_back("billing", queue, 0, -1, -1)
        (dead,) = (await transport.route("%DLQ%billing")).readable
        return pulled.messages, (await transport.bounds(dead)).maximum

    (retried,), dead = run(path, use)
    assert (retried.body, retried.reconsume_times) == (b"1", 1)
    assert dead == 1


def test_instances_of_one_process_share_the_broker_library(path):
    async def use(first):
        second = await EmbeddedTransport.open(path)
        (name,) = await first.brokers()
        await first.heartbeat(name, beat("c1"))
        await second.heartbeat(name, beat("c2"))
        members = await first.members(name, "billing")
        await second.close()
        await first.send((await queues(first))[0], [message()])
        return members

    assert run(path, use) == ["c1", "c2"]


def test_a_missing_store_is_not_created(tmp_path):
    with pytest.raises(StoreNotFoundError):
        run(str(tmp_path / "none"), queues)
    assert not (tmp_path / "none").exists()


def test_a_store_that_a_broker_holds_names_the_endpoint(path):
    command = [sys.executable, "-m", "pyrocket", "broker", path, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        try:
            while "serving" not in broker.stderr.readline():
                assert broker.poll() is None
            with pytest.raises(StoreLockedError, match="as `endpoint` instead of `path`"):
                run(path, queues)
        finally:
            broker.terminate()
            broker.communicate()
