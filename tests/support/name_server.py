"""Runs name servers: in a thread of the test's process, and as separate processes."""

import asyncio
import re
import signal
import threading
import time
from contextlib import contextmanager

from pyrocket.broker.settings import Settings
from pyrocket.server.gate import Gate
from pyrocket.server.nameserver.server import NameServer
from pyrocket.wire.channel import NAME_SERVER
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.messages import fill

from support.forked import Forked, run_command

WAIT_S = 60


@contextmanager
def serving(table, access=None, port=0, **settings):
    """Serve a route table, and yield the address."""
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), {}

    async def serve():
        server = NameServer(table, Gate(access), Settings(**settings))
        port_open = server.listen(f"127.0.0.1:{port}")
        found["address"] = f"127.0.0.1:{port_open}"
        await server.start()
        stop = asyncio.Event()
        found["stop"] = lambda: loop.call_soon_threadsafe(stop.set)
        ready.set()
        await stop.wait()
        await server.stop(1)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield found["address"]
    finally:
        found["stop"]()
        thread.join(30)
        loop.close()


def start(*arguments):
    """Start `pyrocket nameserver` with pipes for both outputs."""
    return Forked(run_command, "nameserver", *map(str, arguments))


@contextmanager
def running(*arguments, port=0):
    """Run a name server; yield the process and its address."""
    process = start("--listen", f"127.0.0.1:{port}", *arguments)
    try:
        yield process, _address(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)


def _address(process):
    for line in process.stderr:
        if found := re.search(r"serving routes at (\S+)", line):
            return found[1]
    raise AssertionError("the name server has not started")


def wait_until(holds, seconds=WAIT_S):
    """Wait until a function returns a true value, and return it."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def request_of(call, **fields):
    method = service(NAME_SERVER).methods_by_name[call]
    request = message_class(method.input_type.full_name)()
    return fill(request, fields).SerializeToString()


def ask(channel, call, metadata=(), **fields):
    """Make a call with one reply, and return the reply's value."""
    method = service(NAME_SERVER).methods_by_name[call]
    path, sent = f"/{NAME_SERVER}/{call}", request_of(call, **fields)
    reply = channel.unary_unary(path)(sent, metadata=metadata, timeout=20)
    return message_class(method.output_type.full_name).FromString(reply).value


class BrokerStream:
    """A broker's stream to a name server."""

    def __init__(self, channel, metadata=()):
        from queue import SimpleQueue

        self._sent = SimpleQueue()
        self._replies = channel.stream_stream(f"/{NAME_SERVER}/Register")(
            iter(self._sent.get, None), metadata=metadata, timeout=30
        )

    def register(self, registration):
        """Send a registration, and wait for the answer."""
        self.send(request_of("Register", registration=registration))

    def send(self, data):
        self._sent.put(data)
        return next(self._replies)

    def close(self):
        """End the stream, and wait until the name server has ended its replies."""
        self._sent.put(None)
        assert list(self._replies) == []

    def cancel(self):
        self._sent.put(None)
        self._replies.cancel()
