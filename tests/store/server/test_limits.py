"""A broker enforces its limits: memory, waiting clients, stalled streams, size of requests."""

import asyncio
import os
import statistics
import threading
import time

import pyarrow as pa
import pytest
from pyrocket import Message, MessageQueue, QueueRange, RemoteSink, Store
from pyrocket.disk import io
from pyrocket.errors import BrokerBusyError, TransportError
from pyrocket.remote.client import Client, Timeouts
from pyrocket.remote.connection import Connection
from pyrocket.server.call_server import LoopWatch
from pyrocket.server.incoming import Budget, Share
from support.broker import served
from support.raw_http2 import RawConnection, announced


@pytest.fixture
def store(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    store.topics.create("orders", read_queues=1, write_queues=1)
    return store


def client_of(address, **timeouts):
    return Client(Connection(address), Timeouts(**timeouts))


A, B = ("a",), ("b",)


def test_a_connection_waits_for_memory_that_it_holds_and_others_do_not():
    async def check():
        budget = Budget(100, 400)
        await budget.wait(A, 80)
        waits = [asyncio.ensure_future(budget.wait(A, size)) for size in (30, 10)]
        await budget.wait(B, 100)
        assert not any(one.done() for one in waits)
        budget.add(A, -80)
        await asyncio.gather(*waits)
        assert budget.total == 140
        for holders, size in ((A, 40), (B, 100)):
            budget.add(holders, -size)
        assert budget.total == 0
        await budget.wait(A, 1000)

    asyncio.run(asyncio.wait_for(check(), 5))


def test_something_is_left_for_others_however_many_hold_all_they_can():
    share = Share(of_connection=64, in_total=512)
    greedy = [(f"greedy {number}",) for number in range(30)]
    for _ in range(64):
        for one in greedy:
            if share.fits(one, 1):
                share.add(one, 1)
    assert all(share.fits((f"other {number}",), 1) for number in range(10))
    assert share.total > 400


def test_the_connections_of_one_user_leave_something_for_other_users():
    share = Share(of_connection=64, in_total=512)
    for number in range(1000):
        one = (f"greedy {number}", "user")
        if share.fits(one, 1):
            share.add(one, 1)
    assert share.total == 256
    assert share.fits(("other", "other user"), 64)


def test_a_call_that_gives_up_waiting_lets_the_next_one_have_the_memory():
    async def check():
        budget = Budget(100, 400)
        await budget.wait(A, 50)
        first, second = (asyncio.ensure_future(budget.wait(A, size)) for size in (90, 10))
        await asyncio.sleep(0)
        first.cancel()
        await second
        budget.add(A, -60)
        assert budget.total == 0

    asyncio.run(asyncio.wait_for(check(), 5))


def test_connections_that_wait_for_memory_take_turns():
    async def check():
        budget, order = Budget(100, 100), []

        async def hold(holders):
            await budget.wait(holders, 100)
            order.append(holders[0])
            await asyncio.sleep(0)
            budget.add(holders, -100)

        await asyncio.gather(*(hold(one) for one in (A, A, A, A, B, B)))
        assert order == ["a", "a", "b", "a", "b", "a"]

    asyncio.run(asyncio.wait_for(check(), 5))


def test_slow_requests_do_not_keep_out_those_of_others(store):
    limits = {"request_bytes": 1 << 20, "connection_bytes": 4 << 20, "total_bytes": 16 << 20}
    slow = announced(1 << 20) + bytes((1 << 20) - 1)
    with served(store, **limits) as address:
        others = [RawConnection(address) for _ in range(10)]
        for one in others:
            for _ in range(20):
                one.send(one.open("/pyrocket.v1.Broker/Topics"), slow, timeout=0.05)
        client, took_s = client_of(address, call=20), []
        sink = RemoteSink(client)
        for _ in range(10):
            began = time.monotonic()
            sink.send(Message(topic="orders", body=b"x"))
            took_s.append(time.monotonic() - began)
        assert statistics.median(took_s) < 1
        for one in others:
            one.close()
        client.close()


def test_the_loop_watch_counts_callbacks_that_block_the_loop():
    watch = LoopWatch()
    assert watch.count == 0
    loop = asyncio.SelectorEventLoop(watch)
    loop.run_until_complete(asyncio.sleep(0.05))
    before = watch.count
    loop.call_soon(time.sleep, 0.05)
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert watch.count == before + 1
    assert watch.longest_s > 0.04


def test_too_many_waiting_clients_are_rejected(store):
    with served(store, parked_polls=1) as address:
        client = client_of(address)
        first = client.stream("Watch")
        next(first)
        with pytest.raises(BrokerBusyError):
            next(client.stream("Watch"))
        first.close()
        client.close()


def test_the_stream_of_a_client_that_stops_reading_is_cancelled(store):
    body = pa.array([os.urandom(1_000_000)] * 30, pa.binary())
    store.append_batch(pa.record_batch({"body": body}), topic="orders")
    with served(store, stream_stalled=0.3) as address:
        client = client_of(address)
        wanted = [QueueRange(MessageQueue("orders", "broker-a", 0), 0, 30)]
        blocks = client.stream("Slices", ranges=wanted)
        next(blocks)
        time.sleep(1.5)
        with pytest.raises(TransportError) as caught:
            list(blocks)
        assert caught.value.repeat_is_safe
        client.close()


def test_a_stream_that_waits_too_long_for_memory_is_cancelled(store, monkeypatch):
    store.append(Message(topic="orders", body=b"1"))
    monkeypatch.setattr(Budget, "fits", lambda _, holders, amount: amount == 16 << 20)
    with served(store, stream_stalled=0.2) as address:
        queue = MessageQueue("orders", "broker-a", 0)
        with pytest.raises(TransportError, match="stopped sending or reading"):
            next(client_of(address).stream("Slices", ranges=[QueueRange(queue, 0, 1)]))


def test_a_request_over_the_size_limit_is_rejected(store):
    with served(store, request_bytes=100_000) as address:
        client = client_of(address, total=5)
        with pytest.raises(TransportError, match="RESOURCE_EXHAUSTED"):
            client.call("Bounds", topics=["x" * 100_000])
        client.close()


def test_limits_above_those_of_grpc_are_no_limits(store):
    large = {"connection_idle": 60 * 86_400, "request_bytes": 3 << 30, "streams_per_client": 10**10}
    with served(store, **large) as address:
        client = client_of(address)
        assert [one.name for one in client.call("Topics").value] == ["orders"]
        client.close()


def test_a_running_stream_completes_during_shutdown(store):
    store.append(Message(topic="orders", body=b"1"))
    wanted = [QueueRange(MessageQueue("orders", "broker-a", 0), 0, 1)]
    with served(store) as address:
        client = client_of(address)
        blocks = client.stream("Slices", ranges=wanted)
        next(blocks)
    list(blocks)
    client.close()


def test_slow_fsyncs_do_not_block_the_event_loop(store, monkeypatch):
    real = io.sync

    def slow(descriptor):
        time.sleep(1)
        real(descriptor)

    with served(store) as address:
        client = client_of(address)
        monkeypatch.setattr(io, "sync", slow)
        slow_call = threading.Thread(target=client.call, args=("Flush",))
        store.append(Message(topic="orders", body=b"1"))
        slow_call.start()
        began = time.monotonic()
        for _ in range(20):
            client.call("Bounds", topics=["orders"])
        took = time.monotonic() - began
        monkeypatch.undo()
        slow_call.join()
        client.close()
    assert took < 1
