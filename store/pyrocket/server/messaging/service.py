"""Serves the calls of `apache.rocketmq.v2.MessagingService`.

Every call that was received is answered with gRPC's status OK; its outcome is the status in the
reply.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, TypeVar

import grpc

from pyrocket.broker.broker import Broker
from pyrocket.broker.pop.values import Received
from pyrocket.broker.settings import Settings
from pyrocket.broker.work import Work
from pyrocket.formats.compression import LongBodyError
from pyrocket.server.call_server import CallServer
from pyrocket.server.gate import Gate
from pyrocket.server.incoming import Incoming
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import check_stored, status
from pyrocket.server.messaging.interface import SERVICE, new, parse
from pyrocket.server.messaging.long_polls import deadline_of, wait_for_messages
from pyrocket.server.messaging.offsets import get_offset, query_offset, update_offset
from pyrocket.server.messaging.pulling import PullReply, parse_pull, pull, pull_replies
from pyrocket.server.messaging.receipts import ReceiptCalls
from pyrocket.server.messaging.receive_calls import (
    Receive,
    delivery_time,
    parse_receive,
    receive,
    receive_replies,
    release,
)
from pyrocket.server.messaging.routes import RouteCalls
from pyrocket.server.messaging.sending import SendCalls
from pyrocket.server.messaging.sessions import ClientSession, Sessions, Stream
from pyrocket.server.messaging.telemetry import Telemetry, send_again_soon, settings_are_for_node
from pyrocket.server.messaging.transactions import end_transaction
from pyrocket.server.messaging.unary import Answer, UnaryCalls
from pyrocket.services.consumption import MAX_BODY_BYTES

_Value = TypeVar("_Value")
_COPIES = 2
"""The bodies of received messages are copied into the replies."""


class MessagingService:
    """Serves RocketMQ's clients. Used by one event loop."""

    def __init__(self, broker: Broker, gate: Gate, server: CallServer, settings: Settings) -> None:
        self._broker, self._server = broker, server
        self._gate, self._calls = gate, UnaryCalls(gate, server)
        self._max_wait_s, self._long_body = settings.long_poll, asyncio.Lock()
        self._sessions = Sessions()
        self.routes = routes = RouteCalls(broker)
        sending = SendCalls(broker, routes, self._sessions)
        self._telemetry = Telemetry(broker, self._sessions)
        broker.is_connected = self._sessions.is_connected
        receipts = ReceiptCalls(broker, self._sessions)
        self._answers: dict[str, Answer] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "AckMessage": receipts.ack_message,
            "ChangeInvisibleDuration": receipts.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": receipts.forward_message_to_dead_letter_queue,
            "Heartbeat": self._telemetry.heartbeat,
            "NotifyClientTermination": self._telemetry.notify_client_termination,
            "SyncLiteSubscription": self._telemetry.sync_lite_subscription,
            "SendMessage": sending.send_message,
            "RecallMessage": sending.recall_message,
            "EndTransaction": partial(end_transaction, broker),
            "UpdateOffset": partial(update_offset, broker),
            "GetOffset": partial(get_offset, broker),
            "QueryOffset": partial(query_offset, broker),
        }
        broker.transactions.ask_through(self._sessions)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service; a call without one is UNIMPLEMENTED."""
        handlers = self._calls.handlers(self._answers)
        for name, handle in (
            ("PullMessage", self._pull_message),
            ("ReceiveMessage", self._receive_message),
            ("Telemetry", self._follow),
        ):
            handlers[name] = self._server.handler(name, handle, streams=True, report=self._report)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def stop(self) -> None:
        """End all streams."""
        self._sessions.close()

    async def _report(self, call: Incoming, error: Exception) -> None:
        """Report the error of a call that has several replies as a status reply."""
        refusal = self._calls.refusal(call, error)
        kind = "TelemetryCommand" if call.name == "Telemetry" else f"{call.name}Response"
        failed = new(kind, status=status(refusal.code, refusal.text))
        await call.send(failed.SerializeToString())
        if call.name == "ReceiveMessage":
            await call.send(delivery_time(self._broker).SerializeToString())

    async def _asked(
        self, call: Incoming, check: Callable[[Any, Caller], _Value]
    ) -> tuple[_Value, ClientSession]:
        """Return the parameters of a call that may wait; its request then takes up no memory."""
        request = await call.request()

        def parsed() -> tuple[_Value, ClientSession]:
            caller = Caller.of(call.origin, self._gate)
            asked = check(parse(f"{call.name}Request", request), caller)
            return asked, self._sessions.seen(caller.key)

        parameters = await self._server.run(parsed)
        call.release_requests()
        return parameters

    async def _pull_message(self, call: Incoming) -> None:
        run = self._server.run
        asked, session = await self._asked(call, parse_pull)
        if asked.wait_ms:
            # Created in a thread, because this may wait for the disk.
            await run(lambda: self._broker.polls)
        start = asked.offset
        deadline = deadline_of(call.time_remaining(), asked.wait_ms, self._max_wait_s)

        async def look(longest: int | None) -> PullReply:
            nonlocal start
            pulled = await run(lambda: pull(self._broker.store, asked, start, longest))
            call.hold(_COPIES * sum(len(message.body) for message in pulled.messages))
            start = pulled.next_offset
            return pulled

        async with AsyncExitStack() as ending:
            with call.parked():
                place = (asked.group, asked.topic, asked.queue_id)
                paid = partial(self._paid, call, look, ending)
                pulled = await wait_for_messages(self._broker, place, session, deadline, paid)
            replies = await run(lambda: pull_replies(asked, pulled))
            await call.send(*replies)

    async def _paid(
        self,
        call: Incoming,
        look: Callable[[int | None], Awaitable[_Value]],
        ending: AsyncExitStack,
    ) -> _Value:
        """Look for messages, once there is memory for their bodies.

        Of all calls that find a body longer than those that are sent to this broker, one at a time
        receives it: until `ending`.
        """
        call.hold(0)
        await call.reserve(_COPIES * MAX_BODY_BYTES)
        try:
            return await look(MAX_BODY_BYTES)
        except LongBodyError:
            call.hold(0)
            with call.within(self._server.limits.settings.stream_stalled):
                await ending.enter_async_context(self._long_body)
            return await look(None)

    async def _receive_message(self, call: Incoming) -> None:
        asked, session = await self._asked(call, parse_receive)
        deadline = deadline_of(call.time_remaining(), asked.wait_ms, self._max_wait_s)
        place = (asked.group, asked.topic, None)

        async def look(longest: int | None) -> Received:
            received = await self._take(asked, longest)
            call.hold(_COPIES * sum(len(delivery.message.body) for delivery in received.messages))
            return received

        async with AsyncExitStack() as ending:
            with call.parked():
                paid = partial(self._paid, call, look, ending)
                received = await wait_for_messages(self._broker, place, session, deadline, paid)
            await self._send_received(call, asked, received)

    async def _send_received(self, call: Incoming, asked: Receive, received: Received) -> None:
        try:
            check_stored((await asyncio.wrap_future(received.stored)).status)
            replies = await self._server.run(lambda: receive_replies(self._broker, asked, received))
            await call.send(*replies)
        except BaseException:  # BaseException includes the cancellation of the call.
            self._release(asked, received)
            raise

    async def _take(self, asked: Receive, longest: int | None) -> Received:
        """Receive messages, and release them if the call is cancelled in the meantime."""
        taking = asyncio.ensure_future(
            self._server.run(lambda: receive(self._broker, asked, longest), Work.RECEIVE)
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda done: self._give_back(asked, done))
            raise

    def _give_back(self, asked: Receive, done: "asyncio.Future[Received]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._release(asked, done.result())

    def _release(self, asked: Receive, received: Received) -> None:
        self._server.run(lambda: release(self._broker, asked, received), Work.CHANGE)

    async def _follow(self, call: Incoming) -> None:
        """Serve the Telemetry stream of a client until the client or the broker ends it."""
        caller, stream = Caller.of(call.origin, self._gate), Stream()
        with call.staying():
            first = await call.request()
            session = self._sessions.connect(caller.key, stream)
            reading = asyncio.ensure_future(self._read(first, call, caller, session, stream))
            try:
                while (command := await stream.next()) is not None:
                    await call.send(command.SerializeToString())
            finally:
                self._sessions.disconnect(session, stream)
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    async def _read(
        self, first: bytes, call: Incoming, caller: Caller, session: ClientSession, stream: Stream
    ) -> None:
        """Reply to the commands of a client until it closes its side of the stream."""
        try:
            await self._obey(first, caller, session, stream)
            async for request in call.following():
                await self._obey(request, caller, session, stream)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            refusal = self._calls.refusal(call, error)
            stream.offer(new("TelemetryCommand", status=status(refusal.code, refusal.text)))
        stream.offer(None)

    async def _obey(
        self, request: bytes, caller: Caller, session: ClientSession, stream: Stream
    ) -> None:
        work = partial(self._reply, request, caller, session)
        reply = await self._server.run(work, Work.CHANGE)
        if reply is not None and stream.offer(reply) and settings_are_for_node(reply):
            send_again_soon(session)

    def _reply(self, request: bytes, caller: Caller, session: ClientSession) -> Any:
        command = parse("TelemetryCommand", request)
        return self._telemetry.answer(command, caller, session)
