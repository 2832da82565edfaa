"""The broker behind an address: the event loop parses, waits and answers; threads do the work."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio

from pyrocket.broker.broker import Broker
from pyrocket.errors import InvalidInputError, PyrocketError
from pyrocket.rpc.allocator import keep_blocks
from pyrocket.rpc.descriptors import message_class
from pyrocket.rpc.errors import status_of
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.health import Health
from pyrocket.rpc.messages import put
from pyrocket.rpc.service import SERVICE, BulkService, Call

_LOG = logging.getLogger("pyrocket")

_VERSION_SECONDS = 0.01
"""Versions are sent at most so often."""

READ_THREADS = 8
"""Calls that are answered at the same time; others wait in the order in which they came."""

MAX_REQUEST_BYTES = 16 << 20

OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
]
"""Without the first a second broker on the same port starts without an error; with the last ones
clients may look every 10 s whether the broker is still there."""

_Value = TypeVar("_Value")
_Context = Any


class Server:
    """Serves one broker. Made and used inside an event loop."""

    def __init__(self, broker: Broker, gate: Gate | None = None) -> None:
        self._broker, self._gate = broker, gate or Gate()
        keep_blocks()
        self._pool = ThreadPoolExecutor(READ_THREADS, "pyrocket-call")
        self._server = grpc.aio.server(options=OPTIONS)
        self._stopping = asyncio.Event()
        calls = BulkService(broker).calls()
        handlers = {call.name: self._handler(call) for call in calls}
        handlers["Watch"] = grpc.unary_stream_rpc_method_handler(self._watch)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                Health(lambda: not self._stopping.is_set()).handlers(),
            )
        )

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Open a port, with TLS if there are credentials; return its number.

        Raises RuntimeError if it is in use.
        """
        if credentials is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, credentials)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def stop(self, seconds: float = 30) -> None:
        """Refuse new calls, let those that run end for so long, then cancel them."""
        self._stopping.set()
        await self._server.stop(seconds)
        self._pool.shutdown()

    def _handler(self, call: Call) -> grpc.RpcMethodHandler:
        async def unary(request: bytes, context: _Context) -> bytes:
            reply = await self._guarded(
                context, lambda: self._run(lambda: self._answer(call, request, context))
            )
            if isinstance(reply, Future):
                waiting = asyncio.wrap_future(reply)
                reply = await self._guarded(context, lambda: waiting)
            return call.encode(reply)

        async def stream(request: bytes, context: _Context) -> AsyncIterator[bytes]:
            replies: Iterator[Any] = await self._guarded(
                context, lambda: self._run(lambda: iter(self._answer(call, request, context)))
            )
            try:
                while (
                    reply := await self._guarded(
                        context, lambda: self._run(lambda: next(replies, None))
                    )
                ) is not None:
                    yield call.encode(reply)
            finally:
                await asyncio.shield(self._run(lambda: _close(replies)))

        if call.streams:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)

    def _answer(self, call: Call, request: bytes, context: _Context) -> Any:
        user = self._gate.user(context.invocation_metadata() or ())
        arguments = _arguments(call, request)
        visible = self._gate.admit(user, call.name, arguments)
        return visible(call.answer(**arguments))

    async def _guarded(self, context: _Context, work: Callable[[], Awaitable[_Value]]) -> _Value:
        """Await `work`; its error ends the call."""
        try:
            return await work()
        except PyrocketError as error:
            await context.abort(*status_of(error))
            raise
        except Exception as error:
            _LOG.exception("a call has failed unexpectedly")
            await context.abort(*status_of(_unexpected(error)))
            raise

    def _run(self, work: Callable[[], _Value]) -> Awaitable[_Value]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _watch(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        """Send versions as they change, until the client or the server ends."""
        admit = partial(self._gate.user, context.invocation_metadata() or ())
        await self._guarded(context, lambda: self._run(admit))
        kind = message_class("pyrocket.v1.Version")
        sent = None
        while not self._stopping.is_set():
            version = self._broker.version()
            if version != sent:
                message = kind()
                put(message, version)
                yield message.SerializeToString()
                sent = version
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _VERSION_SECONDS)


def _arguments(call: Call, request: bytes) -> dict[str, Any]:
    try:
        return call.arguments(request)
    except PyrocketError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"the request of {call.name} is malformed: {error}.",
            remedy="Use a client of this release.",
            code="REQUEST_MALFORMED",
        ) from error


def _unexpected(error: Exception) -> PyrocketError:
    return PyrocketError(
        f"the broker has failed unexpectedly: {type(error).__name__}.",
        remedy="Its log has the whole error; please report it.",
        code="BROKER_FAILED",
    )


def _close(replies: Iterator[Any]) -> None:
    close = getattr(replies, "close", None)
    if close is not None:
        close()
