"""Results of threads reach the event loop: none is lost, and each wakes it at most once."""

import asyncio
import random
import threading
import time
from concurrent.futures import Future

import grpc
import pytest
from pyrocket import Message, MessageQueue, Store
from pyrocket.base.loop_threads import PendingReply
from pyrocket.broker.sends import Sends
from pyrocket.broker.work import Work
from pyrocket.server.call_server import threads_of
from pyrocket.values.message import OutgoingMessage
from pyrocket.wire.channel import method_of
from pyrocket.wire.messages import fill
from support.broker import served
from support.rocketmq_stub import Stub, code_of


@pytest.fixture
def threads():
    pools = threads_of(read_threads=4)
    yield lambda work, kind: pools[kind].run(work)
    for pool in pools.values():
        pool.shutdown()


def test_results_of_concurrent_threads_all_arrive(threads):
    rng = random.Random(1)

    def work(number):
        if number % 7 == 0:
            time.sleep(rng.random() / 1000)
        return number

    async def run_all():
        kinds = [*Work]
        calls = (
            threads(lambda number=number: work(number), kinds[number % len(kinds)])
            for number in range(5_000)
        )
        return await asyncio.wait_for(asyncio.gather(*calls), 60)

    assert asyncio.run(run_all()) == [*range(5_000)]


def test_a_pending_reply_is_created_when_its_result_is_set(threads):
    result = Future()

    async def run():
        call = threads(lambda: PendingReply(result, lambda value: value + 1), Work.SEND)
        await asyncio.sleep(0.05)
        assert not call.done()
        threading.Thread(target=result.set_result, args=(41,)).start()
        return await asyncio.wait_for(call, 10)

    assert asyncio.run(run()) == 42


def test_an_error_reaches_only_its_own_call(threads):
    done = Future()
    done.set_result(1)

    async def run():
        calls = [
            threads(lambda: PendingReply(done, lambda value: 1 / 0), Work.SEND),
            threads(lambda: [][0], Work.SEND),
            threads(lambda: "fine", Work.SEND),
        ]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)

    first, second, third = asyncio.run(run())
    assert isinstance(first, ZeroDivisionError)
    assert isinstance(second, IndexError)
    assert third == "fine"


def test_a_cancelled_call_does_not_affect_others(threads):
    started, ended = threading.Event(), threading.Event()

    def slow():
        started.set()
        ended.wait(10)

    async def run():
        slow_call = threads(slow, Work.WRITE)
        await asyncio.to_thread(started.wait, 10)
        slow_call.cancel()
        ended.set()
        return await asyncio.wait_for(threads(lambda: "next", Work.WRITE), 10)

    assert asyncio.run(run()) == "next"


def test_sends_of_both_protocols_have_the_same_thread(tmp_path, monkeypatch):
    store, threads, send = Store.open(tmp_path / "store", create=True), [], Sends.send

    def noted(self, messages):
        threads.append(threading.current_thread().name)
        return send(self, messages)

    monkeypatch.setattr(Sends, "send", noted)
    queue = MessageQueue("t", store.broker_name, 0)
    message = OutgoingMessage(Message(topic="t", body=b""), b"1", "id", 1)
    method, request, _ = method_of("SendMessages", "pyrocket.v1.Clients")
    sent = fill(request(), {"queue": queue, "messages": [message]}).SerializeToString()
    with served(store) as address, grpc.insecure_channel(address) as channel:
        channel.unary_unary(method)(sent, timeout=20)
        stub = Stub(address)
        assert code_of(stub.send(b"2")) == "OK"
        stub.close()
    assert threads == ["pyrocket-send_0"] * 2
