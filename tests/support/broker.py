"""Brokers for tests: a store behind an address, in a thread of this process."""

import asyncio
import re
import threading
from contextlib import contextmanager

import grpc
from pyrocket.broker.broker import Broker
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.server import Server


class FaultyServer(Server):
    """A server whose calls can be lost or late: `faults` as in `support.memory.Fault`."""

    def __init__(self, broker, faults):
        self._faults = faults
        super().__init__(broker)

    def _handler(self, call):
        handler = super()._handler(call)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(call, handler.unary_unary))
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(call, handler.unary_stream))
        return handler

    def _unary(self, call, answer):
        async def unary(request, context):
            fault = await self._fault(call, context)
            reply = await answer(request, context)
            return await lose(context) if fault else reply

        return unary

    def _stream(self, call, answer):
        async def stream(request, context):
            fault = await self._fault(call, context)
            async for reply in answer(request, context):
                yield reply
                if fault:
                    await lose(context)

        return stream

    async def _fault(self, call, context):
        """Return the fault that strikes after the effect of this call, if there is one."""
        names = {"append", "publish"} if call.name == "Publish" else {snake(call.name)}
        fault = next((each for each in self._faults if each.call in names), None)
        if fault is None:
            return None
        self._faults.remove(fault)
        await asyncio.sleep(fault.seconds)
        if not fault.after and not fault.seconds:
            await lose(context)
        return fault if fault.after else None


async def lose(context):
    """End a call as a connection does that the client does not repeat by itself."""
    await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "lost")


def snake(name):
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


@contextmanager
def served(store, port=0, access=None, certificate=None, faults=None):
    """Serve an open store, which is closed at the end; the value is its address."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []
    broker = Broker(store)

    async def serve():
        gate = Gate(access, lambda: broker.source.topics())
        server = Server(broker, gate) if faults is None else FaultyServer(broker, faults)
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
