"""Serves the calls of `apache.rocketmq.v2.MessagingService`.

Every call that was received is answered with gRPC's status OK; its outcome is the status in the
reply.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import grpc

from pyrocket.broker.broker import Broker
from pyrocket.broker.pop.values import Received
from pyrocket.broker.settings import Settings
from pyrocket.errors import PyrocketError
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.messaging.caller import Caller
from pyrocket.rpc.messaging.codes import check_stored, status
from pyrocket.rpc.messaging.interface import SERVICE, new
from pyrocket.rpc.messaging.long_polls import LongPolls, deadline_of
from pyrocket.rpc.messaging.offsets import Offsets
from pyrocket.rpc.messaging.pulling import Pulled, Pulling
from pyrocket.rpc.messaging.receipts import Receipts
from pyrocket.rpc.messaging.receiving import Receive, Receiving
from pyrocket.rpc.messaging.routes import Routes
from pyrocket.rpc.messaging.sending import Sending
from pyrocket.rpc.messaging.sessions import Session, Sessions, Stream
from pyrocket.rpc.messaging.telemetry import (
    Telemetry,
    send_again_soon,
    settings_are_for_node,
)
from pyrocket.rpc.messaging.transactions import AskedProducers, EndTransaction
from pyrocket.rpc.messaging.unary import Answer, Serving, UnaryCalls
from pyrocket.rpc.origin import Origin
from pyrocket.rpc.threads import Work

_Value = TypeVar("_Value")


class MessagingService:
    """Serves RocketMQ's clients. Used by one event loop."""

    def __init__(self, broker: Broker, gate: Gate, serving: Serving, settings: Settings) -> None:
        self._broker, self._serving = broker, serving
        self._calls = UnaryCalls(gate, serving)
        self._max_wait_s = settings.long_poll
        creates_groups = settings.creates_groups
        self._sessions = Sessions()
        self.routes = routes = Routes(broker)
        sending = Sending(broker, routes, self._sessions)
        self._telemetry = Telemetry(broker, self._sessions, creates_groups=creates_groups)
        self._pulling = Pulling(broker)
        self._receiving = Receiving(broker, creates_groups=creates_groups)
        self._long_polls = LongPolls(broker)
        broker.is_connected = self._sessions.is_connected
        receipts = Receipts(broker, self._sessions)
        offsets, transactions = Offsets(broker), EndTransaction(broker)
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
            "EndTransaction": transactions.end_transaction,
            "UpdateOffset": offsets.update_offset,
            "GetOffset": offsets.get_offset,
            "QueryOffset": offsets.query_offset,
        }
        broker.transactions.ask_through(AskedProducers(self._sessions))

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service; a call without one is UNIMPLEMENTED."""
        found = self._calls.handlers(self._answers)
        found["PullMessage"] = grpc.unary_stream_rpc_method_handler(self._pull_message)
        found["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(self._receive_message)
        found["Telemetry"] = grpc.stream_stream_rpc_method_handler(self._telemetry_stream)
        return grpc.method_handlers_generic_handler(SERVICE, found)

    def stop(self) -> None:
        """End all streams."""
        self._sessions.close()

    async def _pull_message(self, request: bytes, context: Any) -> None:
        await self._stream("PullMessage", request, context, self._pull)

    async def _receive_message(self, request: bytes, context: Any) -> None:
        await self._stream("ReceiveMessage", request, context, self._receive)

    async def _stream(
        self, name: str, request: bytes, context: Any, work: Callable[[Any, Any], Awaitable[None]]
    ) -> None:
        """Answer a call that has several replies; report an error as a status reply."""
        began, code = time.monotonic(), "OK"
        try:
            parsed = new(f"{name}Request").FromString(request)
            async with self._serving.budget.hold(context.peer(), len(request)):
                await work(parsed, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            refusal = self._calls.refusal(error)
            code = refusal.code
            failed = new(f"{name}Response", status=status(code, refusal.text))
            await self._serving.send(context, failed.SerializeToString())
            if name == "ReceiveMessage":
                await self._serving.send(context, self._receiving.time().SerializeToString())
        finally:
            self._serving.observe(name, code, time.monotonic() - began)

    async def _pull(self, request: Any, context: Any) -> None:
        run, origin = self._serving.run, Origin.of(context)
        asked, session = await run(
            lambda: self._parsed(lambda caller: self._pulling.parse(request, caller), origin)
        )
        if asked.wait_ms:
            # Created in a thread, because this may wait for the disk.
            await run(lambda: self._broker.polls)
        start = asked.offset
        deadline = deadline_of(context, asked.wait_ms, self._max_wait_s)

        async def look() -> Pulled:
            nonlocal start
            pulled = await run(lambda: self._pulling.pull(asked, start))
            start = pulled.next_offset
            return pulled

        with self._serving.park(origin.peer):
            place = (request.group.name, asked.topic, asked.queue_id)
            pulled = await self._long_polls.wait(place, session, deadline, look)
        replies = await run(lambda: self._pulling.replies(asked, pulled))
        await self._serving.send(context, *replies)

    async def _receive(self, request: Any, context: Any) -> None:
        run, origin = self._serving.run, Origin.of(context)
        asked, session = await run(
            lambda: self._parsed(lambda caller: self._receiving.parse(request, caller), origin)
        )
        deadline = deadline_of(context, asked.wait_ms, self._max_wait_s)
        place = (asked.group, asked.topic, None)
        with self._serving.park(origin.peer):
            received = await self._long_polls.wait(
                place, session, deadline, lambda: self._take(asked)
            )
        try:
            check_stored((await asyncio.wrap_future(received.stored)).status)
            replies = await run(lambda: self._receiving.replies(asked, received))
            await self._serving.send(context, *replies)
        except BaseException:  # BaseException includes the cancellation of the call.
            self._release(asked, received)
            raise

    async def _take(self, asked: Receive) -> Received:
        """Receive messages, and release them if the call is cancelled in the meantime."""
        taking = asyncio.ensure_future(
            self._serving.run(lambda: self._receiving.receive(asked), Work.RECEIVE)
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
        self._serving.run(lambda: self._receiving.release(asked, received), Work.CHANGE)

    def _parsed(self, parse: Callable[[Caller], _Value], origin: Origin) -> tuple[_Value, Session]:
        caller = self._calls.caller(origin)
        return parse(caller), self._sessions.seen(caller.key)

    async def _telemetry_stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Serve the stream of one client until the client closes it or the broker stops."""
        origin = Origin.of(context)
        try:
            caller = await self._serving.run(lambda: self._calls.caller(origin))
        except Exception as error:
            await self._refuse(context, error)
            return
        try:
            with self._serving.park(origin.peer):
                await self._follow(requests, context, caller)
        except PyrocketError as error:
            await self._refuse(context, error)

    async def _follow(self, requests: AsyncIterator[bytes], context: Any, caller: Caller) -> None:
        stream = Stream()
        session = self._sessions.connect(caller.key, stream)
        reading = asyncio.ensure_future(self._read(requests, caller, session, stream))
        try:
            while (command := await stream.next()) is not None:
                await self._serving.send(context, command.SerializeToString())
        finally:
            self._sessions.disconnect(session, stream)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(
        self, requests: AsyncIterator[bytes], caller: Caller, session: Session, stream: Stream
    ) -> None:
        """Reply to the commands of a client until it closes its side of the stream."""
        try:
            async for request in requests:
                reply = await self._serving.run(
                    partial(self._reply, request, caller, session), Work.CHANGE
                )
                if reply is None or not stream.offer(reply):
                    continue
                if settings_are_for_node(reply):
                    send_again_soon(session)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            refusal = self._calls.refusal(error)
            stream.offer(new("TelemetryCommand", status=status(refusal.code, refusal.text)))
        stream.offer(None)

    def _reply(self, request: bytes, caller: Caller, session: Session) -> Any:
        command = new("TelemetryCommand").FromString(request)
        return self._telemetry.answer(command, caller, session)

    async def _refuse(self, context: Any, error: Exception) -> None:
        refusal = self._calls.refusal(error)
        command = new("TelemetryCommand", status=status(refusal.code, refusal.text))
        await self._serving.send(context, command.SerializeToString())
