"""The base of the servers of brokers and name servers: threads, rights, limits and errors.

The event loop receives, waits and replies; threads do the work.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import grpc
import grpc.aio

from pyrocket.broker.settings import Settings
from pyrocket.errors import BrokerBusyError, InvalidInputError, PyrocketError
from pyrocket.rpc.errors import status_of
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.limits import Budget
from pyrocket.rpc.origin import Origin
from pyrocket.rpc.service import Call
from pyrocket.rpc.threads import Threads, Work

_LOG = logging.getLogger("pyrocket")

DEFAULTS = Settings()
_PENDING = 1_000_000


def _options(settings: Settings, ping_s: int, answer_s: int) -> list[tuple[str, int]]:
    """Return the options of the server.

    Without the first option, a second broker could share the port. With the last two, the server
    accepts any number of keepalive pings, and never answers too_many_pings.

    A client waits while it has too many calls; it learns the limit when it connects. gRPC's
    overload protection would refuse calls below the limit, and its limits for calls that have
    arrived but not started would cancel some above 1000.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.streams_per_client),
        ("grpc.http.overload_protection", 0),
        ("grpc.server.max_pending_requests", _PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _PENDING),
        ("grpc.max_connection_idle_ms", int(1000 * settings.connection_idle)),
        ("grpc.keepalive_time_ms", 1000 * ping_s),
        ("grpc.keepalive_timeout_ms", 1000 * answer_s),
        ("grpc.http2.ping_timeout_ms", 1000 * answer_s),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 0),
        ("grpc.http2.max_ping_strikes", 0),
    ]


_Value = TypeVar("_Value")
_Context = Any


class CallServer:
    """Serves calls. Created and used inside an event loop.

    A client that sends nothing for `ping_s` gets a keepalive ping, and is disconnected if it does
    not answer within `answer_s`.
    """

    ping_s, answer_s = 60, 20

    def __init__(self, gate: Gate, settings: Settings = DEFAULTS) -> None:
        self._gate, self._settings = gate, settings
        self._threads = Threads(settings.read_threads)
        self._server = grpc.aio.server(options=_options(settings, self.ping_s, self.answer_s))
        self._stopping = asyncio.Event()
        self.parked = self.stalled = 0
        self._parked_by_peer: Counter[str] = Counter()
        self.observe: Callable[[str, str, float], None] = lambda call, status, seconds: None
        self.budget = Budget(settings.connection_bytes, settings.total_bytes)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Open a port, with TLS if there are credentials; return its number.

        Raises RuntimeError if the port is in use.
        """
        if credentials is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, credentials)

    @property
    def is_stopping(self) -> bool:
        """Whether the server is shutting down and accepts no new calls."""
        return self._stopping.is_set()

    async def start(self) -> None:
        """Start serving."""
        await self._server.start()

    async def stop(self, seconds: float = 30) -> None:
        """Accept no new calls, and cancel running calls after `seconds`."""
        self._stopping.set()
        await self._server.stop(seconds)
        self._threads.shutdown()

    def handler(self, call: Call) -> grpc.RpcMethodHandler:
        """Return the handler of a call."""

        async def unary(request: bytes, context: _Context) -> bytes:
            return await self.guarded(
                call.name, context, request, lambda: self._reply(call, request, context)
            )

        async def stream(request: bytes, context: _Context) -> None:
            await self.guarded(
                call.name, context, request, lambda: self._replies(call, request, context)
            )

        if call.streams:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)

    async def _reply(self, call: Call, request: bytes, context: _Context) -> bytes:
        origin = Origin.of(context)
        return await self._encoded(call, lambda: self._answer(call, request, origin))

    async def _encoded(self, call: Call, answer: Callable[[], Any]) -> bytes:
        """Call `answer` in a thread, await the result if it is a future, and encode it."""

        def work() -> "bytes | Future[Any]":
            reply = answer()
            return reply if isinstance(reply, Future) else call.encode(reply)

        reply = await self.run(work, Work.WRITE if call.writes else Work.READ)
        if isinstance(reply, Future):
            return call.encode(await asyncio.wrap_future(reply))
        return reply

    async def _replies(self, call: Call, request: bytes, context: _Context) -> None:
        origin = Origin.of(context)
        replies: Iterator[Any] = await self.run(lambda: iter(self._answer(call, request, origin)))
        taking: Awaitable[Any] | None = None
        try:
            while True:
                taking = self.run(lambda: next(replies, None))
                reply = await asyncio.shield(taking)
                if reply is None:
                    return
                await self.send(context, call.encode(reply))
        finally:
            await asyncio.shield(self._finish(taking, replies))

    async def _finish(self, taking: Awaitable[Any] | None, replies: Iterator[Any]) -> None:
        """Close the replies of a stream after the thread that fetches the next one has finished."""
        if taking is not None:
            with suppress(Exception):
                await taking
        await self.run(lambda: _close(replies))

    async def send(self, context: _Context, *replies: bytes) -> None:
        """Send replies of a stream; cancel the stream if the client does not read them in time."""
        try:
            await asyncio.wait_for(self._write(context, replies), self._settings.stream_stalled)
        except asyncio.TimeoutError:
            self.stalled += 1
            with connected():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "The client stopped reading.")

    async def _write(self, context: _Context, replies: Sequence[bytes]) -> None:
        for reply in replies:
            async with self.budget.wait(context.peer(), len(reply)):
                with connected():
                    await context.write(reply)

    def _answer(self, call: Call, request: bytes, origin: Origin) -> Any:
        arguments, visible = self.admitted(call, request, origin)
        return visible(call.answer(**arguments))

    def admitted(
        self, call: Call, request: bytes, origin: Origin
    ) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        """Authorize a call; return its arguments, and the function that filters its reply.

        Raises NotAuthenticatedError, StorePermissionError, InvalidInputError.
        """
        user = self._gate.user(origin.metadata)
        arguments = arguments_of(call, request)
        return arguments, self._gate.admit(user, call.name, arguments)

    async def guarded(
        self, call: str, context: _Context, request: bytes, work: Callable[[], Awaitable[_Value]]
    ) -> _Value:
        """Await `work` within the memory limits; an error ends the call with a status."""
        began, status = time.monotonic(), "OK"
        try:
            async with self.budget.hold(context.peer(), len(request)):
                return await work()
        except PyrocketError as error:
            code, text, metadata = status_of(self._gate.without_names(error))
            status = code.name
            with connected():
                await context.abort(code, text, metadata)
            raise
        except grpc.aio.AbortError:
            status = "UNAVAILABLE"
            raise
        except Exception as error:
            status = "UNKNOWN"
            _LOG.exception("a call failed unexpectedly")
            with connected():
                await context.abort(*status_of(_unexpected(error)))
            raise
        finally:
            self.observe(call, status, time.monotonic() - began)

    def run(self, work: Callable[[], _Value], kind: Work = Work.READ) -> Awaitable[_Value]:
        """Run work in a thread for its kind."""
        return self._threads.run(work, kind)

    @contextmanager
    def park(self, peer: str) -> Iterator[None]:
        """Count a waiting call of a connection during a `with` block.

        Half of a connection's calls remain for acks and heartbeats, which must not wait. Raises
        BrokerBusyError if too many calls wait.
        """
        mine, settings = self._parked_by_peer, self._settings
        if self.parked >= settings.parked_polls or mine[peer] > settings.streams_per_client // 2:
            raise BrokerBusyError(
                "too many clients are waiting for changes.",
                remedy="Raise the broker's setting parked_polls or streams_per_client.",
            )
        self.parked += 1
        mine[peer] += 1
        try:
            yield
        finally:
            self.parked -= 1
            mine[peer] -= 1
            if not mine[peer]:
                del mine[peer]


@contextmanager
def connected() -> Iterator[None]:
    """Cancel the call if the client has gone while a reply or status is sent.

    gRPC cancels a call whose client has gone, except while it sends: then the send fails.
    """
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:
        raise asyncio.CancelledError from None


def arguments_of(call: Call, request: bytes) -> dict[str, Any]:
    """Return the arguments of a call. Raises InvalidInputError (REQUEST_MALFORMED)."""
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
        f"the broker failed unexpectedly: {type(error).__name__}.",
        remedy="Please report the error; its traceback is in the broker's log.",
        code="BROKER_FAILED",
    )


def _close(replies: Iterator[Any]) -> None:
    close = getattr(replies, "close", None)
    if close is not None:
        close()
