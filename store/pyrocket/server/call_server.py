"""The base of the servers of brokers and name servers: threads, rights, limits and errors.

The event loop receives, waits and replies; threads do the work. All calls have one shape: the
server authenticates the caller by the metadata of the call, waits for memory, and only then reads
the request. Without that, gRPC would receive and keep requests of any client.

Each kind of work has its own threads, so that one kind does not wait for another. For example,
while a receive scans many messages of a queue, the acks of its group wait, but sends do not.
"""

import asyncio
import logging
import resource
import selectors
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from traceback import clear_frames
from typing import Any, TypeVar

import grpc
import grpc.aio

from pyrocket.base.allocator import keep_blocks, release_blocks
from pyrocket.base.loop_threads import LoopThreads
from pyrocket.broker.settings import Settings
from pyrocket.broker.work import Work
from pyrocket.errors import PyrocketError
from pyrocket.formats.wire_block import BLOCK_BYTES
from pyrocket.server.gate import Gate
from pyrocket.server.incoming import COPIES, CallLimits, CallOrigin, Incoming
from pyrocket.server.service import Call
from pyrocket.wire.errors import status_of

_LOG = logging.getLogger("pyrocket")

DEFAULTS = Settings()
_PENDING = 1_000_000

_UNREAD_BYTES = 16_384
"""What gRPC receives of a request before the server reads it, and of the metadata of a call."""

_OWN_FILES = 64
"""Descriptors that are left for the files of the store when all connections are in use."""

_SWEEP_S = 0.25
"""Interval at which calls are cancelled whose clients are too slow, or whose users lost a right."""

_RELEASE_S = 1
"""Interval at which the server returns free memory to the system. Without it, free memory between
the blocks of slow clients makes the process larger by a third."""

_RELEASE_BYTES, _RELEASE_CALLS = 8 << 20, 500
"""Memory is released, in about 20 ms, only after this many bytes of requests and replies, after the
number of open calls has fallen by this many, or while gRPC keeps replies of ended calls."""

_BLOCK_COPIES = COPIES + 1
"""The stream of blocks keeps the records of the last one."""

_BLOCK_PRICE = _BLOCK_COPIES * BLOCK_BYTES

HELD_S = 0.02
"""Longest time that a callback should block the event loop."""

_ABORT_S = 1
"""Time to tell a client that is too slow that its call was cancelled."""


_NO_LIMIT = 2**31 - 1
"""gRPC's largest number: as the time after which an idle connection is closed, it means never."""


def _options(settings: Settings, ping_s: int, answer_s: int) -> list[tuple[str, int]]:
    """Return the options of the server.

    Without the first option, a second broker could share the port. With the last two, the server
    accepts any number of keepalive pings, and never answers too_many_pings.

    A request that is not read takes up the initial window of its stream, which gRPC would enlarge
    for fast clients (bdp_probe). A compressed request could be a thousand times as large as its
    limit; no client of RocketMQ compresses requests.

    A client waits while it has too many calls; it learns the limit when it connects. gRPC's
    overload protection would refuse calls below the limit, and its limits for calls that have
    arrived but not started would cancel some above 1000.

    Connections above their limit are closed at once.
    """
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.max_metadata_size", _UNREAD_BYTES),
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_allowed_incoming_connections", _most_connections()),
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
    return [(name, min(value, _NO_LIMIT)) for name, value in options]


def _most_connections() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _NO_LIMIT if files == resource.RLIM_INFINITY else max(files - _OWN_FILES, 1)


_Value = TypeVar("_Value")
Handle = Callable[[Incoming], Awaitable[bytes | None]]
"""Handles a call, and returns its reply; None for a call that has sent its replies."""

_Report = Callable[[Incoming, Exception], Awaitable[bytes | None]]
"""Tells the client of a call about an error, and returns the reply."""


class CallServer:
    """Serves calls. Created and used inside an event loop.

    A client that sends nothing for `ping_s` gets a keepalive ping, and is disconnected if it does
    not answer within `answer_s`.
    """

    ping_s, answer_s = 60, 20

    def __init__(self, gate: Gate, settings: Settings = DEFAULTS) -> None:
        keep_blocks()
        self._gate, self._settings = gate, settings
        self._threads = threads_of(settings.read_threads)
        self._server = grpc.aio.server(options=_options(settings, self.ping_s, self.answer_s))
        self._stopping = asyncio.Event()
        self._sweeping: list[asyncio.Future[None]] = []
        self.observe: Callable[[str, str, float], None] = lambda call, status, seconds: None
        self.limits = CallLimits(settings)

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
        self._sweeping = [
            asyncio.ensure_future(self._sweep()),
            asyncio.ensure_future(self._release()),
        ]

    async def _sweep(self) -> None:
        """Cancel late calls, and after a change of the users those that are no longer allowed."""
        seen = self._gate.current()
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.limits.cancel_late()
            if (current := self._gate.current()) is not seen:
                seen = current
                self.limits.cancel_refused(self._gate.check_again)

    async def _release(self) -> None:
        """Return free memory to the system at intervals, after many bytes or many calls.

        Do it once more afterwards: gRPC frees calls later than they end.
        """
        released, most, limits, again = 0, 0, self.limits, False
        while True:
            await asyncio.sleep(_RELEASE_S)
            most = max(most, limits.calls.total)
            ended = most - limits.calls.total
            handled = limits.handled - released
            is_due = handled >= _RELEASE_BYTES or ended >= _RELEASE_CALLS or limits.unread > 0
            if is_due or again:
                released, most = limits.handled, limits.calls.total
                await self.run(release_blocks)
            again = is_due

    async def stop(self, seconds: float = 30) -> None:
        """Accept no new calls, and cancel running calls after `seconds`."""
        self._stopping.set()
        await self._server.stop(seconds)
        for sweeping in self._sweeping:
            sweeping.cancel()
        for pool in self._threads.values():
            pool.shutdown()

    def handler(
        self,
        name: str,
        handle: Handle,
        *,
        streams: bool = False,
        anonymous: bool = False,
        report: _Report | None = None,
    ) -> grpc.RpcMethodHandler:
        """Return the handler of a call.

        streams: Whether the call has several replies.
        anonymous: Whether it needs no user.
        report: Reports errors; by default as a gRPC status with the error in its metadata.
        """

        async def serve(requests: Any, context: Any) -> bytes | None:
            call = Incoming(name, context, self.limits)
            return await self._serve(call, handle, report or self._abort, anonymous=anonymous)

        if streams:
            return grpc.stream_stream_rpc_method_handler(serve)
        return grpc.stream_unary_rpc_method_handler(serve)

    async def _serve(
        self, call: Incoming, handle: Handle, report: _Report, *, anonymous: bool
    ) -> bytes | None:
        began = time.monotonic()
        try:
            call.admit(self._gate.anonymous if anonymous else self._gate.user(call.origin.metadata))
            return await handle(call)
        except asyncio.CancelledError:
            if call.refusal is not None:
                return await report(call, call.refusal)
            if call.is_late:
                await self._end_late(call)
            raise
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            clear_frames(error.__traceback__)  # They refer to requests, replies and themselves.
            return await report(call, error)
        finally:
            self.observe(call.name, call.status, time.monotonic() - began)

    async def _end_late(self, call: Incoming) -> None:
        """Tell a slow client that its call has ended, unless its connection is full."""
        text = "The client stopped sending or reading, or its other streams took up its memory."
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(call.abort(grpc.StatusCode.UNAVAILABLE, text), _ABORT_S)

    async def _abort(self, call: Incoming, error: Exception) -> None:
        if not isinstance(error, PyrocketError):
            _LOG.error("a call failed unexpectedly", exc_info=error)
            error = PyrocketError(
                f"the broker failed unexpectedly: {type(error).__name__}.",
                remedy="Please report the error; its traceback is in the broker's log.",
                code="BROKER_FAILED",
            )
        await call.abort(*status_of(self._gate.without_names(error)))

    def handler_of(self, call: Call) -> grpc.RpcMethodHandler:
        """Return the handler of a call that its `answer` answers."""

        async def reply(incoming: Incoming) -> bytes:
            request = await incoming.request()
            return await self.encoded(
                incoming, call, lambda: self._answer(call, request, incoming.origin)
            )

        async def replies(incoming: Incoming) -> None:
            await self._send_all(call, incoming)

        return self.handler(call.name, replies if call.streams else reply, streams=call.streams)

    async def encoded(self, incoming: Incoming, call: Call, answer: Callable[[], Any]) -> bytes:
        """Call `answer` in a thread, await the result if it is a future, and encode it."""

        def work() -> "bytes | Future[Any]":
            result = answer()
            return result if isinstance(result, Future) else call.encode(result)

        result = await self.run(work, call.work)
        if isinstance(result, Future):
            result = call.encode(await asyncio.wrap_future(result))
        return incoming.reply(result)

    async def _send_all(self, call: Call, incoming: Incoming) -> None:
        replies, taking = await self._started(call, incoming), None
        try:
            while True:
                await incoming.reserve(_BLOCK_PRICE)
                taking = self.run(lambda: next(replies, None))
                reply = await asyncio.shield(taking)
                if reply is None:
                    return
                incoming.hold(_BLOCK_COPIES * len(reply))
                await incoming.send(call.encode(reply))
                incoming.hold(0)
        finally:
            await asyncio.shield(self._finish(taking, replies))

    async def _started(self, call: Call, incoming: Incoming) -> Iterator[Any]:
        """Return the replies of a stream; then the request takes up no memory."""
        request = await incoming.request()
        replies = await self.run(lambda: iter(self._answer(call, request, incoming.origin)))
        incoming.release_requests()
        return replies

    async def _finish(self, taking: Awaitable[Any] | None, replies: Iterator[Any]) -> None:
        """Close the replies of a stream after the thread that fetches the next one has finished."""
        if taking is not None:
            with suppress(Exception):
                await taking
        await self.run(lambda: _close(replies))

    def _answer(self, call: Call, request: bytes, origin: CallOrigin) -> Any:
        arguments, visible = self.admitted(call, request, origin)
        return visible(call.answer(**arguments))

    def admitted(
        self, call: Call, request: bytes, origin: CallOrigin
    ) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        """Authorize a call; return its arguments, and the function that filters its reply.

        Raises StorePermissionError, InvalidInputError.
        """
        arguments = call.arguments(request)
        return arguments, self._gate.admit(origin, call.name, arguments)

    def run(self, work: Callable[[], _Value], kind: Work = Work.READ) -> Awaitable[_Value]:
        """Run work in a thread for its kind; see `LoopThreads.run`."""
        return self._threads[kind].run(work)


def _close(replies: Iterator[Any]) -> None:
    close = getattr(replies, "close", None)
    if close is not None:
        close()


_THREADS = 8


def threads_of(read_threads: int) -> dict[Work, LoopThreads]:
    """Return a thread pool for each kind of work."""
    counts = dict.fromkeys(Work, _THREADS) | {Work.READ: read_threads, Work.SEND: 1}
    return {kind: LoopThreads(count, f"pyrocket-{kind.value}") for kind, count in counts.items()}


class LoopWatch(selectors.DefaultSelector):
    """An event loop's selector that counts how often callbacks blocked the loop for too long."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.longest_s, self._woke = 0, 0.0, time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events. The time since the last wait was spent in callbacks."""
        held = time.monotonic() - self._woke
        self.longest_s = max(self.longest_s, held)
        self.count += held > HELD_S
        events = super().select(timeout)
        self._woke = time.monotonic()
        return events
