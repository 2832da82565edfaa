"""Serves `pyrocket.v1.Clients`: the calls of `pyrocket.client`'s producers and consumers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from pyrocket.broker.broker import Broker
from pyrocket.broker.client_calls import ClientCalls
from pyrocket.broker.settings import Settings
from pyrocket.errors import PyrocketError
from pyrocket.server.call_server import CallServer
from pyrocket.server.gate import Gate
from pyrocket.server.incoming import CallOrigin, Incoming
from pyrocket.server.messaging.long_polls import wait_for_messages
from pyrocket.server.messaging.sessions import ClientSession, Stream
from pyrocket.server.service import Call, call_of, calls_of
from pyrocket.values.consuming import PullStatus, RawPulled
from pyrocket.values.message import MessageQueue
from pyrocket.values.transactions import Undecided
from pyrocket.wire.channel import CLIENTS
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.messages import fill

_PULLED_BYTES = 3 << 20
"""Memory reserved for the messages of a pull: most have 256 KiB, one message has up to 4 MiB."""


@dataclass(frozen=True)
class _Looked:
    """The result of a pull.

    `messages` is empty only if there are no new messages; then `wait_for_messages` repeats it.
    """

    reply: RawPulled
    has_more: bool = False

    @property
    def messages(self) -> Sequence[Any]:
        return () if self.reply.status is PullStatus.NO_NEW_MSG else (self.reply,)


class ClientsService:
    """Serves the calls. Used by one event loop."""

    def __init__(self, broker: Broker, gate: Gate, server: CallServer, settings: Settings) -> None:
        self._broker, self._gate, self._server = broker, gate, server
        self._max_wait_s = settings.long_poll
        self._session = ClientSession(("", CLIENTS))
        self._streams: set[Stream] = set()
        self._clients = ClientCalls(broker)
        self._calls = calls_of(CLIENTS, self._clients.table())
        method = service(CLIENTS).methods_by_name["Notifications"]
        self._watch = call_of(method, self._subscribe)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service."""
        server = self._server
        handlers = {name: server.handler_of(call) for name, call in self._calls.items()}
        handlers["PullQueue"] = server.handler("PullQueue", self._pull)
        handlers["Notifications"] = server.handler("Notifications", self._notify, streams=True)
        return grpc.method_handlers_generic_handler(CLIENTS, handlers)

    def stop(self) -> None:
        """End all pulls that wait, and all streams."""
        self._session.end()
        for stream in [*self._streams]:
            stream.offer(None)

    async def _pull(self, incoming: Incoming) -> bytes:
        call, run = self._calls["PullQueue"], self._server.run
        asked = await self._asked(call, incoming)

        async def look() -> _Looked:
            incoming.hold(0)
            await incoming.reserve(_PULLED_BYTES)
            pulled = _Looked(await run(partial(call.answer, **asked)))
            if not pulled.messages:
                incoming.hold(0)
            return pulled

        pulled = await look()
        hold_s = min(asked["hold_ms"] / 1000, self._max_wait_s)
        if not pulled.messages and hold_s > 0:
            await run(lambda: self._broker.polls)  # Created in a thread: it may wait for the disk.
            queue, deadline = asked["queue"], asyncio.get_running_loop().time() + hold_s
            place = asked["group"], queue.topic, queue.queue_id
            with incoming.parked():
                pulled = await wait_for_messages(self._broker, place, self._session, deadline, look)
        return incoming.reply(await run(lambda: call.encode(pulled.reply)))

    async def _asked(self, call: Call, incoming: Incoming) -> dict[str, Any]:
        """Return the arguments of a call that may wait; its request then takes up no memory."""
        request = await incoming.request()
        admitted = partial(self._server.admitted, call, request, incoming.origin)
        asked, _ = await self._server.run(admitted)
        incoming.release_requests()
        return asked

    async def _notify(self, incoming: Incoming) -> None:
        """Send notifications until the client ends the call or the server stops."""
        asked = await self._asked(self._watch, incoming)
        stream = Stream()
        stop = self._subscribe(**asked, stream=stream, origin=incoming.origin)
        self._streams.add(stream)
        try:
            with incoming.parked():
                while (message := await stream.next()) is not None:
                    await incoming.send(message.SerializeToString())
        finally:
            self._streams.discard(stream)
            stop()
            if asked["client_id"] and not self._server.is_stopping:
                leave = partial(self._broker.consumers.leave, asked["client_id"], asked["group"])
                await asyncio.shield(self._server.run(leave))

    def _subscribe(
        self, group: str, producer_group: str, client_id: str, stream: Stream, origin: CallOrigin
    ) -> Callable[[], None]:
        """Send the changes of a group, or the checks of a producer group, to the stream.

        Returns a function that ends the subscription.
        """

        def notify(undecided: Undecided | None) -> bool:
            if undecided is not None and not self._may_decide(origin, undecided):
                return False
            values = {"group": group} if undecided is None else {"check": undecided}
            return stream.offer(fill(message_class("pyrocket.v1.Notification")(), values))

        return self._clients.watch(notify, group, producer_group, lambda: max(stream.room, 0))

    def _may_decide(self, origin: CallOrigin, undecided: Undecided) -> bool:
        """Whether a user may send to the topic of a half message, and thus see the message."""
        message = undecided.message
        queue = MessageQueue(message.topic, undecided.broker, message.queue_id)
        try:
            self._gate.admit(origin._replace(needed=set()), "SendMessages", {"queue": queue})
        except PyrocketError:
            return False
        return True
