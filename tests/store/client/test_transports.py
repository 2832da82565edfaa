"""Both transports answer the calls of consumers in the same way."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from pyrocket import Message, Store, StoreConfig
from pyrocket.base.credentials import Credentials
from pyrocket.base.versions import PROTOCOL
from pyrocket.client import embedded, remote
from pyrocket.errors import QueueNotFoundError, UnsupportedError
from pyrocket.values.consuming import (
    ConsumerData,
    GroupStart,
    GroupStarts,
    Heartbeat,
    MessageModel,
    Subscription,
)
from pyrocket.values.message import MessageQueue
from pyrocket.wire.descriptors import message_class
from support.broker import served

FIRST = GroupStart(0, 0)


@pytest.fixture
def path(tmp_path):
    with Store.open(tmp_path / "s", create=True) as store:
        store.topics.create("orders", read_queues=2, write_queues=2)
        for number in range(3):
            store.append(Message(topic="orders", body=b"%d" % number, queue_id=0))
    return str(tmp_path / "s")


@pytest.fixture
def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


async def opened(path=None, endpoint=None):
    if path:
        return await embedded.connect(path)
    return await remote.connect([endpoint], Credentials())


def run(at, use):
    """Run `use` with a transport, its broker and its first queue; return the result."""

    async def work():
        transport = await opened(**at)
        try:
            (name,) = await transport.brokers()
            return await use(transport, name, MessageQueue("orders", name, 0))
        finally:
            await transport.close()

    return asyncio.run(work())


def beat(**starts):
    subscriptions = {"orders": Subscription()}
    data = ConsumerData("billing", MessageModel.CLUSTERING, "LAST", subscriptions, starts)
    return Heartbeat("c1", "i1", [data])


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_heartbeat_stores_starts_and_tells_members_from_new_clients(at):
    async def use(transport, name, queue):
        before = await transport.group_starts(name, "billing")
        joined = [await transport.heartbeat(name, beat(orders=GroupStart())) for _ in range(2)]
        await transport.unregister(name, "c1", "billing")
        joined.append(await transport.heartbeat(name, beat(later=FIRST)))
        return before, joined, await transport.group_starts(name, "billing")

    before, joined, after = run(at, use)
    assert joined == [False, True, False]
    assert isinstance(before, GroupStarts)
    assert before.starts == {}
    assert after.starts.keys() == {"orders", "later"}
    assert after.starts["later"] == FIRST
    assert after.starts["orders"].log_offset == before.end.log_offset > 0
    assert after.end.time_ms >= after.starts["orders"].time_ms >= before.end.time_ms


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_a_group_starts_at_its_start_or_its_committed_offset(at):
    async def use(transport, name, queue):
        async def start(given=None, of=queue):
            position = await transport.start_offset("billing", of, given)
            assert position.epoch == 0
            return position.offset

        found = [await start()]
        await transport.heartbeat(name, beat(orders=GroupStart()))
        found.append(await start())
        await transport.commit("billing", "c1", "i1", {queue: 1})
        found += [await start(), await start(FIRST), await start(GroupStart())]
        found += [await start(GroupStart(time_ms=0)), await start(GroupStart(time_ms=2**62))]
        with pytest.raises(QueueNotFoundError):
            await start(of=MessageQueue("orders", name, 2))
        return found

    assert run(at, use) == [0, 3, 1, 0, 3, 0, 3]


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
def test_locked_queues_are_returned_with_whether_they_were_locked_before(at):
    async def use(transport, name, queue):
        both = [queue, MessageQueue("orders", name, 1)]
        await transport.heartbeat(name, beat())
        first = await transport.lock(name, "billing", "c1", both[:1])
        second = await transport.lock(name, "billing", "c1", both)
        return both, first, second, await transport.lock(name, "billing", "c2", both)

    both, first, second, other = run(at, use)
    assert first == {both[0]: False}
    assert second == {both[0]: True, both[1]: False}
    assert other == {}


@pytest.mark.parametrize("at", ["path", "endpoint"], indirect=True)
@pytest.mark.parametrize(("name", "similar"), [("order", ["orders"]), ("zzz", [])])
def test_similar_topics_are_those_of_users(at, name, similar):
    async def use(transport, broker, queue):
        await transport.heartbeat(broker, beat())
        assert (await transport.route("%RETRY%billing")).readable
        names = (
            await transport.similar_topics("%RETRY%billin"),
            await transport.similar_topics(name),
        )
        return [[*each] for each in names]

    assert run(at, use) == [[], similar]


def test_lost_brokers_have_no_similar_topics_and_keep_their_names(path):
    async def use(endpoint, stop):
        transport = await opened(endpoint=endpoint)
        stop()
        try:
            return await transport.similar_topics("order"), await transport.brokers()
        finally:
            await transport.close()

    with ExitStack() as stack:
        endpoint = stack.enter_context(served(Store.open(path)))
        similar, brokers = asyncio.run(use(endpoint, stack.close))
    assert (similar, [*brokers]) == ([], ["broker-a"])


def test_a_broker_that_starts_later_is_found(path, tmp_path, free_port):
    async def use(first):
        addresses = [first, f"127.0.0.1:{free_port}"]
        transport = await remote.connect(addresses, Credentials())
        try:
            before = await transport.brokers()
            config = StoreConfig(broker_name="broker-b")
            with served(Store.open(tmp_path / "b", create=True, config=config), free_port):
                async with asyncio.timeout(30):  # gRPC connects again after a pause.
                    while (after := await transport.brokers()) == before:
                        await asyncio.sleep(0.05)
                return before, after
        finally:
            await transport.close()

    with served(Store.open(path)) as first:
        assert asyncio.run(use(first)) == (["broker-a"], ["broker-a", "broker-b"])


@contextmanager
def older_broker(**replies):
    """Serve only Hello and the calls with a reply; yield the address."""
    hello = {"protocol": PROTOCOL, "release": "0.0.1", "broker": "broker-a"}
    answers = {
        "Hello": message_class("pyrocket.v1.HelloReply")(**hello).SerializeToString(),
        **replies,
    }

    class Calls(grpc.GenericRpcHandler):
        def service(self, details):
            reply = answers.get(details.method.rpartition("/")[2])
            return reply if reply is None else grpc.unary_unary_rpc_method_handler(lambda *_: reply)

    server = grpc.server(ThreadPoolExecutor(1), handlers=(Calls(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield address
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("call", ["GroupStarts", "StartOffset"])
def test_the_error_names_a_call_that_an_older_broker_lacks(call):
    async def use(transport, name, queue):
        if call == "GroupStarts":
            await transport.group_starts(name, "billing")
        else:
            await transport.start_offset("billing", queue)

    with older_broker() as address, pytest.raises(UnsupportedError, match=call) as caught:
        run({"endpoint": address}, use)
    assert caught.value.code == "PROTOCOL_OLDER"
    assert caught.value.remedy


def test_all_members_and_locks_of_an_older_broker_are_new():
    async def use(transport, name, queue):
        locked = await transport.lock(name, "billing", "c1", [queue])
        return await transport.heartbeat(name, beat(orders=FIRST)), locked == {queue: False}

    queue = {"topic": "orders", "broker": "broker-a"}
    locked = message_class("pyrocket.v1.LockQueuesReply")(value=[queue]).SerializeToString()
    with older_broker(JoinGroups=b"", LockQueues=locked) as address:
        assert run({"endpoint": address}, use) == (False, True)
