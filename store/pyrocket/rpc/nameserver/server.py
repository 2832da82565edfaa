"""Serves a route table over gRPC: `pyrocket.v1.NameServer`, and RocketMQ's QueryRoute."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import grpc

from pyrocket.broker.settings import Settings
from pyrocket.nameserver.route_table import BrokerData, Route, RouteTable
from pyrocket.rpc.call_server import CallServer
from pyrocket.rpc.descriptors import service
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.health import Health
from pyrocket.rpc.incoming import Incoming
from pyrocket.rpc.messaging.caller import Caller
from pyrocket.rpc.messaging.codes import status
from pyrocket.rpc.messaging.interface import SERVICE as MESSAGING
from pyrocket.rpc.messaging.interface import new
from pyrocket.rpc.messaging.routes import (
    accepted_types,
    endpoints_of,
    message_queues,
    no_route,
)
from pyrocket.rpc.messaging.unary import UnaryCalls
from pyrocket.rpc.nameserver.calls import SERVICE
from pyrocket.rpc.service import Call, call_of


class NameServer(CallServer):
    """Serves a route table. Created and used inside an event loop."""

    def __init__(self, table: RouteTable, gate: Gate, settings: Settings) -> None:
        super().__init__(gate, settings)
        self._table = table
        methods = service(SERVICE).methods_by_name
        self._register_call = call_of(methods["Register"], table.register)
        handlers = {
            "Register": self.handler("Register", self._follow, streams=True),
            "Routes": self.handler_of(call_of(methods["Routes"], table.routes)),
            "ClusterTopics": self.handler_of(
                call_of(methods["ClusterTopics"], table.cluster_topics)
            ),
            "Brokers": self.handler_of(call_of(methods["Brokers"], table.brokers)),
        }
        messaging = UnaryCalls(gate, self).handlers({"QueryRoute": self._query_route})
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                grpc.method_handlers_generic_handler(MESSAGING, messaging),
                Health(self, SERVICE).handlers(),
            )
        )

    async def _follow(self, incoming: Incoming) -> None:
        """Keep a broker registered until its stream ends or its connection is lost."""
        connection = object()
        register = partial(self._table.register, connection=connection)
        call = replace(self._register_call, answer=register)
        try:
            with incoming.staying():
                request: bytes | None = await incoming.request()
                following = incoming.following()
                while request is not None:
                    await incoming.send(await self._registered(call, request, incoming))
                    request = await self._next(following)
        finally:
            self._table.disconnect(connection)

    async def _registered(self, call: Call, request: bytes, incoming: Incoming) -> bytes:
        reply = await self.run(lambda: self._answer(call, request, incoming.origin))
        incoming.release_requests()
        return call.encode(reply)

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
        accepted = accepted_types(data.topic.message_type)
        yield from message_queues(topic, _broker(broker), data.topic, accepted)


def _broker(data: BrokerData) -> Any:
    """Return the broker with the lowest id."""
    broker_id, address = min(data.addresses.items())
    return new("Broker", name=data.name, id=broker_id, endpoints=endpoints_of(address))
