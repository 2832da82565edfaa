"""Serves a broker over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import grpc

from pyrocket.broker.broker import Broker, Version
from pyrocket.broker.settings import Settings
from pyrocket.engine.received import ReceivedRecords
from pyrocket.errors import InvalidInputError
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.rpc.allocator import keep_blocks, release_blocks
from pyrocket.rpc.call_server import DEFAULTS, CallServer, connected
from pyrocket.rpc.clients import ClientsService
from pyrocket.rpc.descriptors import message_class
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.health import Health
from pyrocket.rpc.messages import put
from pyrocket.rpc.messaging.caller import host_of_peer, parse_host
from pyrocket.rpc.messaging.service import MessagingService
from pyrocket.rpc.origin import Origin
from pyrocket.rpc.service import SERVICE, BulkService, Call
from pyrocket.rpc.threads import Work
from pyrocket.rpc.version_feed import VersionFeed
from pyrocket.store import call_on_change

_RELEASE_S = 1
"""Interval at which the server returns free memory to the system. Without it, free memory between
the blocks of slow clients makes the process larger by a third."""

_RELEASE_BYTES = 8 << 20
"""Memory is released only after this many bytes of requests and replies, in about 20 ms."""

_Context = Any
_Requests = AsyncIterator[bytes]


class Server(CallServer):
    """Serves one broker. Created and used inside an event loop."""

    def __init__(
        self, broker: Broker, gate: Gate | None = None, settings: Settings = DEFAULTS
    ) -> None:
        super().__init__(gate or Gate(), settings)
        self._broker, self._listens = broker, False
        keep_blocks()
        self._feed = VersionFeed(broker.version)
        call_on_change(broker.store, self._feed.changed)
        self._releasing: asyncio.Future[None] | None = None
        calls = BulkService(broker).calls()
        handlers = {call.name: self.handler(call) for call in calls}
        handlers["Watch"] = grpc.unary_stream_rpc_method_handler(self._watch)
        self._clients = ClientsService(broker, self._gate, self, settings)
        self._messaging = MessagingService(broker, self._gate, self, settings)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                self._clients.handlers(),
                self._messaging.handlers(),
                Health(self._stopping.is_set, lambda: broker.trouble).handlers(),
            )
        )

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Open a port; the first address is the broker's until `advertise_host`."""
        port = super().listen(address, credentials)
        if not self._listens:
            self.advertise_host(f"{address.rpartition(':')[0]}:{port}")
        self._listens = True
        return port

    def advertise_host(self, address: str) -> None:
        """Set the address in the offset ids of messages; see `Broker.advertise`."""
        if (host := parse_host(address)) is not None:
            self._broker.advertise(host)

    def admitted(
        self, call: Call, request: bytes, origin: Origin
    ) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        """Authorize a call; add the address of the client to the arguments of a send."""
        arguments, visible = super().admitted(call, request, origin)
        if call.has_born_host:
            arguments["born_host"] = host_of_peer(origin.peer)
        return arguments, visible

    def advertise(self, address: str, listens: Sequence[str]) -> None:
        """Set the address at which clients of name servers reach the broker."""
        self._messaging.routes.advertise(address, listens)

    async def start(self) -> None:
        """Start serving."""
        await super().start()
        self._releasing = asyncio.ensure_future(self._release())

    async def _release(self) -> None:
        """Return free memory to the system at intervals, after enough requests and replies."""
        released = 0
        while True:
            await asyncio.sleep(_RELEASE_S)
            if self.budget.passed - released >= _RELEASE_BYTES:
                released = self.budget.passed
                await self.run(release_blocks)

    async def stop(self, seconds: float = 30) -> None:
        """Accept no new calls, and cancel running calls after `seconds`."""
        self._stopping.set()
        self._feed.stop()
        if self._releasing is not None:
            self._releasing.cancel()
        self._clients.stop()
        self._messaging.stop()
        await super().stop(seconds)

    def handler(self, call: Call) -> grpc.RpcMethodHandler:
        async def blocks(requests: _Requests, context: _Context) -> bytes:
            return await self.guarded(
                call.name, context, b"", lambda: self._reply_to_blocks(call, requests, context)
            )

        if call.takes_blocks:
            return grpc.stream_unary_rpc_method_handler(blocks)
        return super().handler(call)

    async def _reply_to_blocks(self, call: Call, requests: _Requests, context: _Context) -> bytes:
        origin = Origin.of(context)
        async with AsyncExitStack() as held:

            async def following() -> bytes:
                request = await self._next(requests, context)
                await held.enter_async_context(self.budget.hold(origin.peer, len(request)))
                return request

            head = await following()
            arguments, _ = await self.run(lambda: self.admitted(call, head, origin), Work.WRITE)
            records = await self._checked(arguments.pop("topics"), following)
            return await self._encoded(call, lambda: call.answer(**arguments, records=records))

    async def _checked(
        self, topics: Mapping[str, int], following: Callable[[], Awaitable[bytes]]
    ) -> ReceivedRecords:
        """Return the records of all blocks; a thread checks a block while the next one arrives."""
        batches: list[EncodedBatch] = []
        checking: Awaitable[EncodedBatch] | None = None
        try:
            while block := await following():
                if checking is not None:
                    batches.append(await checking)
                checking = self.run(partial(self._broker.sink.check, topics, block), Work.WRITE)
        finally:
            if checking is not None:
                batches.append(await asyncio.shield(checking))
        return ReceivedRecords(topics, batches)

    async def _next(self, requests: _Requests, context: _Context) -> bytes:
        """Return the next request of a stream. Raises InvalidInputError if the stream has ended."""
        try:
            return await asyncio.wait_for(anext(requests), self._settings.stream_stalled)
        except StopAsyncIteration:
            raise _cut_off() from None
        except asyncio.TimeoutError:
            self.stalled += 1
            with connected():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "The client stopped sending.")
            raise

    async def _watch(self, request: bytes, context: _Context) -> None:
        await self.guarded("Watch", context, request, lambda: self._versions(context))

    async def _versions(self, context: _Context) -> None:
        """Send each new version until the client disconnects or the server stops."""
        origin = Origin.of(context)
        await self.run(lambda: self._gate.user(origin.metadata))
        with self.park(origin.peer):
            kind = message_class("pyrocket.v1.Version")
            sent: Version | None = None
            while (version := await self._feed.after(sent)) is not None:
                message = kind()
                put(message, version)
                await self.send(context, message.SerializeToString())
                sent = version


def _cut_off() -> InvalidInputError:
    return InvalidInputError(
        "the request ended before its empty last message: nothing was done.",
        remedy="Send an empty message after the blocks.",
        code="REQUEST_MALFORMED",
    )
