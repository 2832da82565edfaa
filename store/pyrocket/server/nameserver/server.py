"""Serves a route table over gRPC: `pyrocket.v1.NameServer`, and RocketMQ's QueryRoute."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import grpc

from pyrocket.broker.settings import Settings
from pyrocket.broker.work import Answers, Work
from pyrocket.metadata.topics import MESSAGE_TYPES
from pyrocket.server.call_server import CallServer
from pyrocket.server.gate import Gate
from pyrocket.server.health import Health
from pyrocket.server.incoming import CallOrigin, Incoming
from pyrocket.server.messaging.caller import Caller, no_route
from pyrocket.server.messaging.codes import status
from pyrocket.server.messaging.interface import SERVICE as MESSAGING
from pyrocket.server.messaging.interface import new
from pyrocket.server.messaging.routes import accepted_types, endpoints_of, message_queues
from pyrocket.server.messaging.unary import UnaryCalls
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.server.service import calls_of
from pyrocket.values.routes import PRIMARY, Route
from pyrocket.wire.channel import NAME_SERVER


class NameServer(CallServer):
    """Serves a route table. Created and used inside an event loop.

    The name of a broker whose machine has gone is free again after 20 s.
    """

    ping_s, answer_s = 10, 10

    def __init__(self, table: RouteTable, gate: Gate, settings: Settings) -> None:
        super().__init__(gate, settings)
        self._table = table
        reads: Answers = {"Routes": table.routes, "ClusterTopics": table.cluster_topics}
        answers: Answers = {**reads, "Brokers": table.brokers, "Register": table.register}
        calls = calls_of(NAME_SERVER, {Work.READ: answers})
        self._register_call = calls["Register"]
        handlers = {name: self.handler_of(call) for name, call in calls.items()}
        handlers["Register"] = self.handler("Register", self._follow, streams=True)
        messaging = UnaryCalls(gate, self).handlers({"QueryRoute": self._query_route})
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(NAME_SERVER, handlers),
                grpc.method_handlers_generic_handler(MESSAGING, messaging),
                Health(self, service=NAME_SERVER).handlers(),
            )
        )

    async def _follow(self, incoming: Incoming) -> None:
        """Keep a broker registered until its stream ends or its connection is lost.

        The stream is authenticated at its beginning, because its metadata is signed only once. The
        rights of its user are checked for each registration.
        """
        connection, origin = object(), incoming.origin
        try:
            with incoming.staying():
                request: bytes | None = await incoming.request()
                following = incoming.following()
                while request is not None:
                    reply = await self.run(partial(self._registered, origin, connection, request))
                    incoming.release_requests()
                    await incoming.send(reply)
                    request = await self._next(following)
        finally:
            self._table.disconnect(connection)

    def _registered(self, origin: CallOrigin, connection: object, request: bytes) -> bytes:
        """Register a broker, and return the reply."""
        call = self._register_call
        arguments = call.arguments(request)
        self._gate.admit(origin, call.name, arguments)
        return call.encode(call.answer(**arguments, connection=connection, user=origin.user or ""))

    async def _next(self, requests: AsyncIterator[bytes]) -> bytes | None:
        """Return the next request of a stream; None if the stream ends or the server stops."""

        async def following() -> bytes | None:
            return await anext(requests, None)

        tasks = asyncio.ensure_future(following()), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()

    def _query_route(self, request: Any, caller: Caller) -> Any:
        """Return the queues of a topic at all brokers, each with its broker's address."""
        topic = caller.topic(request.topic)
        caller.admit("QueryRoute", [topic])
        (route,) = self._table.routes([topic])
        if not route.queues:
            raise no_route(topic)
        queues = list(_message_queues(request.topic, route))
        return new("QueryRouteResponse", status=status("OK"), message_queues=queues)


def _message_queues(topic: Any, route: Route) -> Iterator[Any]:
    for data, broker in zip(route.queues, route.brokers, strict=True):
        # A broker of a later release may have other types; it checks the messages itself.
        known = data.topic.message_type if data.topic.message_type in MESSAGE_TYPES else ""
        accepted = accepted_types(known)
        primary = new("Broker", name=broker.name, endpoints=endpoints_of(broker.addresses[PRIMARY]))
        yield from message_queues(topic, primary, data.topic, accepted)
