"""Serves a broker over gRPC."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc

from pyrocket.broker.broker import Broker
from pyrocket.broker.replicas import ReplicaFeed
from pyrocket.broker.settings import Settings
from pyrocket.broker.work import Work
from pyrocket.engine.received_records import ReceivedRecords
from pyrocket.formats.record_batch import EncodedBatch
from pyrocket.server.call_server import DEFAULTS, CallServer
from pyrocket.server.clients import ClientsService
from pyrocket.server.gate import Gate
from pyrocket.server.health import Health
from pyrocket.server.incoming import COPIES, CallOrigin, Incoming
from pyrocket.server.messaging.caller import host_of_peer, parse_host
from pyrocket.server.messaging.service import MessagingService
from pyrocket.server.service import BulkService, Call, call_of
from pyrocket.server.version_feed import VersionFeed
from pyrocket.store import call_on_change
from pyrocket.values.source import Version
from pyrocket.wire.channel import SERVICE
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.messages import put

_FILES_S = 1
"""How often a replica is sent small files that have changed."""

_SYNC_S, _ASYNC_S = 0.0005, 0.05
"""Minimum times between two blocks for a replica: one that sends wait for, and another one."""


class Server(CallServer):
    """Serves one broker. Created and used inside an event loop."""

    def __init__(
        self, broker: Broker, gate: Gate | None = None, settings: Settings = DEFAULTS
    ) -> None:
        super().__init__(gate or Gate(), settings)
        self._broker, self._listens = broker, False
        self._feed = VersionFeed(broker.version)
        interval_s = _SYNC_S if broker.confirmations.state else _ASYNC_S
        self._log = VersionFeed(self._log_version, interval_s)
        broker.replicas.changed = self._log.changed
        for feed in (self._feed, self._log):
            call_on_change(broker.store, feed.changed)
        calls = BulkService(broker).calls()
        handlers = {call.name: self.handler_of(call) for call in calls}
        handlers["Watch"] = self.handler("Watch", partial(watch_versions, self._feed), streams=True)
        handlers["Replicate"] = self.handler("Replicate", self._replicate, streams=True)
        replicate = service(SERVICE).methods_by_name["Replicate"]
        self._connect = call_of(replicate, broker.replicas.connect)
        self._clients = ClientsService(broker, self._gate, self, settings)
        self._messaging = MessagingService(broker, self._gate, self, settings)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                self._clients.handlers(),
                self._messaging.handlers(),
                Health(self, lambda: broker.trouble).handlers(),
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
        self, call: Call, request: bytes, origin: CallOrigin
    ) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        """Authorize a call; add the address of the client to the arguments of a send."""
        arguments, visible = super().admitted(call, request, origin)
        if call.has_born_host:
            arguments["born_host"] = host_of_peer(origin.peer)
        return arguments, visible

    def advertise(self, address: str, listens: Sequence[str]) -> None:
        """Set the address at which clients reach the broker, also those of name servers."""
        self.advertise_host(address)
        if self._settings.nameserver:
            self._messaging.routes.advertise(address, listens)

    async def stop(self, seconds: float = 30) -> None:
        """Accept no new calls, and cancel running calls after `seconds`."""
        self._stopping.set()
        self._feed.stop()
        self._log.changed()
        self._clients.stop()
        self._messaging.stop()
        await super().stop(seconds)

    def handler_of(self, call: Call) -> grpc.RpcMethodHandler:
        """Return the handler of a call that its `answer` answers."""

        async def reply(incoming: Incoming) -> bytes:
            return await self._reply_to_blocks(call, incoming)

        return self.handler(call.name, reply) if call.takes_blocks else super().handler_of(call)

    async def _reply_to_blocks(self, call: Call, incoming: Incoming) -> bytes:
        await incoming.start_upload()
        head = await incoming.block()
        arguments, _ = await self.run(
            lambda: self.admitted(call, head, incoming.origin), Work.WRITE
        )
        records = await self._checked(arguments.pop("topics"), incoming)
        return await self.encoded(incoming, call, lambda: call.answer(**arguments, records=records))

    async def _checked(self, topics: Mapping[str, int], incoming: Incoming) -> ReceivedRecords:
        """Return the records of all blocks; a thread checks a block while the next one arrives."""
        batches: list[EncodedBatch] = []
        checking: Awaitable[EncodedBatch] | None = None
        try:
            while block := await incoming.block():
                if checking is not None:
                    batches.append(await checking)
                checking = self.run(partial(self._broker.sink.check, topics, block), Work.WRITE)
        finally:
            if checking is not None:
                batches.append(await asyncio.shield(checking))
        return ReceivedRecords(topics, batches)

    async def _replicate(self, incoming: Incoming) -> None:
        """Send the log and the small files to a replica, until it disconnects."""
        request = await incoming.request()
        connect = partial(self._answer, self._connect, request, incoming.origin)
        feed: ReplicaFeed = await self.run(connect)
        incoming.release_requests()
        try:
            with incoming.parked():
                await self._feed_replica(incoming, feed)
        finally:
            feed.close()

    def _log_version(self) -> tuple[object, ...]:
        # Small files may change without a new version.
        period = int(time.monotonic() / _FILES_S)
        return self._broker.replicas.version(), self.is_stopping, period

    async def _feed_replica(self, incoming: Incoming, feed: ReplicaFeed) -> None:
        seen = None
        while not self.is_stopping or self._broker.confirmations.is_waiting:
            while (block := await self.run(feed.next)) is not None:
                incoming.hold(COPIES * len(block))
                await incoming.send(block)
                incoming.hold(0)
            look_again = asyncio.get_running_loop().call_later(_FILES_S, self._log.changed)
            seen = await self._log.after(seen)
            look_again.cancel()


async def watch_versions(feed: VersionFeed, incoming: Incoming) -> None:
    """Send each new version until the client disconnects or the server stops."""
    await incoming.request()
    incoming.release_requests()
    with incoming.parked():
        kind = message_class("pyrocket.v1.Version")
        sent: Version | None = None
        while (version := await feed.after(sent)) is not None:
            message = kind()
            put(message, version)
            await incoming.send(message.SerializeToString())
            sent = version
