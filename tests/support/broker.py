"""Runs brokers in a thread of the test's process."""

import asyncio
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from pyrocket.broker.broker import Broker
from pyrocket.broker.settings import Settings
from pyrocket.server.gate import Gate
from pyrocket.server.server import Server
from pyrocket.values.consuming import ConsumerData, Heartbeat, MessageModel, Subscription
from pyrocket.wire.channel import method_of
from pyrocket.wire.messages import fill

from support.inner import inner


@dataclass
class Fault:
    """A fault of the next call named `call`: an error before or after its effect, or a delay."""

    call: str
    after: bool = False
    seconds: float = 0


class FaultyServer(Server):
    """A server that loses or delays calls; `faults` contains `Fault`s."""

    def __init__(self, faults, *parts):
        super().__init__(*parts)
        self._faults, self._cut = faults, set()

    def handler(self, name, handle, *, streams=False, **options):
        async def faulty(call):
            fault = await self._fault(call)
            if fault and streams:
                call.send = losing(call, call.send)
            reply = await handle(call)
            return await lose(call) if fault else reply

        return super().handler(name, faulty, streams=streams, **options)

    async def _fault(self, call):
        """Return the fault to inject after the effect of this call, or None."""
        names = {"append", "publish"} if call.name == "Publish" else {snake(call.name)}
        fault = next((each for each in self._faults if each.call in names), None)
        if fault is None:
            return None
        self._faults.remove(fault)
        await asyncio.sleep(fault.seconds)
        if not fault.after and not fault.seconds:
            await lose(call)
        return fault if fault.after else None


def losing(call, send):
    """Return a function that sends replies, and then ends the call."""

    async def sent(*replies):
        await send(*replies)
        await lose(call)

    return sent


async def lose(call):
    """End a call with a connection error that the client does not retry by itself."""
    await call.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "lost")


def snake(name):
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


def join_group(address, group, client_id, **subscriptions):
    """Send one heartbeat of a member with tags by topic to the broker at an address."""
    by_topic = {topic: Subscription(tags) for topic, tags in subscriptions.items()}
    data = ConsumerData(group, MessageModel.CLUSTERING, "last", by_topic)
    method, request, _ = method_of("JoinGroups", "pyrocket.v1.Clients")
    sent = fill(request(), {"heartbeat": Heartbeat(client_id, client_id, [data])})
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary(method)(sent.SerializeToString(), timeout=20)


@contextmanager
def served(store, port=0, access=None, certificate=None, faults=None, **settings):
    """Serve an open store, and yield the address; close the broker and the store at the end."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []
    given = Settings(**settings)
    broker = Broker(
        store,
        max_request_bytes=given.request_bytes,
        checks=given.check_policy(),
        trace_topic=given.trace_topic if given.trace else "",
        auto_create_groups=given.creates_groups,
        sync_timeout_s=given.replica_timeout,
    )

    async def serve():
        gate = Gate(access, lambda: broker.source.topics())
        server = FaultyServer([] if faults is None else faults, broker, gate, Settings(**settings))
        credentials = certificate and certificate.credentials()
        found = server.listen(f"127.0.0.1:{port}", credentials)
        address.append(f"127.0.0.1:{found}")
        await server.start()
        stop = asyncio.Event()
        address.append(lambda: loop.call_soon_threadsafe(stop.set))
        ready.set()
        await stop.wait()
        await server.stop(1)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield address[0]
    finally:
        address[1]()
        thread.join(30)
        loop.close()
        broker.close()


def kill(broker):
    """End a broker like a killed process: nothing is saved, and the store is not closed."""
    broker.transactions.close()
    broker._services.stop()
    if broker._polls is not None:
        broker._polls.close()
    broker.sink.close()
    inner(broker.store).crash()
