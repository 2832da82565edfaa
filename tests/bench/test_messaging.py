"""Single messages through RocketMQ's gRPC protocol: sends, long polls, and memory.

The callers are coroutines of one process. They share the cores with the broker.
"""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import grpc.aio
import psutil
import pytest
from bench.pairs import MIB, ROUNDS, measure
from pyrocket import Store
from pyrocket.server.messaging.interface import PACKAGE, SERVICE, name_of, new
from pyrocket.wire.descriptors import message_class
from support import broker_process
from support.rocketmq_stub import message

CALLERS = 16
TESTS = Path(__file__).resolve().parent.parent
METADATA = (("x-mq-client-id", "bench@1@0@x"),)


@contextmanager
def server(*arguments):
    """Run `bench.messaging_server`; yield its address, and a function that counts its fsyncs."""
    paths = os.pathsep.join([os.environ["PYTHONPATH"], str(TESTS)])
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.messaging_server", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )

    def fsyncs():
        process.stdin.write("\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    try:
        yield process.stdout.readline().split()[0], fsyncs
    finally:
        process.kill()
        process.communicate()


class Caller:
    """Makes calls on one channel. Requests are encoded before the measurement."""

    def __init__(self, address):
        # Otherwise all channels of the process share one connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(address, options)

    async def unary(self, name, request):
        call = self.channel.unary_unary(f"/{SERVICE}/{name}")
        return ok(name, await call(request, metadata=METADATA, timeout=60))

    async def receive(self, seconds):
        """Wait for a message; return the replies of the stream."""
        request = new(
            "ReceiveMessageRequest",
            group={"name": "g"},
            message_queue={"topic": {"name": "t"}, "id": -1},
            filter_expression={"expression": "*", "type": 1},
            batch_size=1,
            invisible_duration={"seconds": 60},
            long_polling_timeout={"seconds": seconds},
        )
        call = self.channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        kind = message_class(f"{PACKAGE}.ReceiveMessageResponse")
        replies = call(request.SerializeToString(), metadata=METADATA, timeout=60)
        return [kind.FromString(reply) async for reply in replies]


def ok(name, reply):
    """Check the code of a reply, and return the decoded reply."""
    reply = message_class(f"{PACKAGE}.{name}Response").FromString(reply)
    assert name_of("Code", reply.status.code) == "OK", reply
    return reply


def send_request(body=b"x" * 100):
    return new("SendMessageRequest", messages=[message(body)]).SerializeToString()


async def send_concurrently(address, requests):
    """Send all requests with 16 callers; return the duration in seconds."""
    caller, left = Caller(address), iter(requests)

    async def work():
        for request in left:
            await caller.unary("SendMessage", request)

    await caller.unary("SendMessage", send_request())
    begin = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CALLERS)))
    seconds = time.perf_counter() - begin
    await caller.channel.close()
    return seconds


def new_store(path):
    with Store.open(path, create=True) as store:
        store.topics.create("t")
        store.groups.create("g")
    return path


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_concurrent_sends_beside_a_server_that_does_nothing(fast_disk, large, report, flush):
    count, rounds = (4_000, ROUNDS) if large else (32, 1)
    path = new_store(fast_disk / "store")
    with server(path, flush) as (address, fsyncs), server() as (nothing, _):
        requests = [send_request() for _ in range(count)]

        def sending(to):
            return lambda: asyncio.run(send_concurrently(to, requests))

        ours, reference = sending(address), sending(nothing)
        before = fsyncs()
        ours()
        done = fsyncs() - before
        if flush == "sync":
            report.line(
                f"{CALLERS} callers, flush=sync: {count / done:.1f} sends per fsync of 2 ms"
            )
        name = f"sends of {CALLERS} callers, flush={flush}, beside a server that does nothing"
        wall = partial(measure, ours, reference, rounds)
        report.rate_share(name, wall, count, "messages", 0.25)


def test_latency_from_a_send_to_a_waiting_receive(fast_disk, large, report):
    """The receive waits as a long poll before each send."""
    count = 1_000 if large else 5
    with broker_process.running(new_store(fast_disk / "store")) as (_, found):
        seconds = asyncio.run(latencies(found.listen[0], count))
    cuts = quantiles(seconds, n=100)
    report.line(
        f"send → long-polled receive, {count} times: median {1000 * median(seconds):.1f} ms,"
        f" 99th percentile {1000 * cuts[98]:.1f} ms"
    )


async def latencies(address, count):
    sender, receiver, found = Caller(address), Caller(address), []
    requests = [send_request(b"%d" % number) for number in range(count)]
    for number, request in enumerate(requests):
        waiting = asyncio.ensure_future(receiver.receive(seconds=20))
        await asyncio.sleep(0.01)
        begin = time.perf_counter()
        await sender.unary("SendMessage", request)
        replies = await waiting
        found.append(time.perf_counter() - begin)
        bodies = [each.message.body for each in replies if each.HasField("message")]
        assert bodies == [b"%d" % number]
    await sender.channel.close()
    await receiver.channel.close()
    return found


def test_memory_of_idle_long_polls(fast_disk, large, report):
    """Each connection has one poll."""
    polls = 1_000 if large else 20
    with broker_process.running(new_store(fast_disk / "store")) as (process, found):
        memory = asyncio.run(memory_of_polls(found.listen[0], polls, psutil.Process(process.pid)))
    without, connected, waiting = (each / MIB for each in memory)
    report.line(
        f"{polls:,} idle long polls take {waiting - connected:.1f} MiB in addition to their"
        f" connections, which take {connected - without:.1f} MiB (aim: ≤ 64 MiB)"
    )
    assert not large or waiting - connected <= 64


async def memory_of_polls(address, polls, broker):
    """Return the broker's memory without connections, with connections, and with a poll on each."""
    before = broker.memory_full_info().uss
    callers = [Caller(address) for _ in range(polls)]
    await asyncio.gather(*(caller.channel.channel_ready() for caller in callers))
    connected = broker.memory_full_info().uss
    waiting = [asyncio.ensure_future(caller.receive(seconds=30)) for caller in callers]
    await asyncio.sleep(1 + polls / 200)
    assert not any(each.done() for each in waiting)
    memory = broker.memory_full_info().uss
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for caller in callers:
        await caller.channel.close()
    return before, connected, memory
