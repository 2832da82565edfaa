"""Brokers for tests: a store behind an address, in a thread of this process."""

import asyncio
import threading
from contextlib import contextmanager

from pyrocket.broker.broker import Broker
from pyrocket.broker.settings import Settings
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.server import Server


@contextmanager
def served(store, port=0, access=None, certificate=None, **settings):
    """Serve an open store, which is closed at the end; the value is its address."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []
    broker = Broker(store)

    async def serve():
        server = Server(broker, Gate(access, lambda: broker.source.topics()), Settings(**settings))
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
