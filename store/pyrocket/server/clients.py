"""Serves `pyrocket.v1.Clients`: the calls of `pyrocket.client`'s producers and consumers."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import grpc

from pyrocket.broker.broker import Broker
from pyrocket.broker.settings import Settings
from pyrocket.errors import MessageError, PyrocketError
from pyrocket.formats.compression import COMPRESSED_FLAGS, Inflation
from pyrocket.formats.record import Host
from pyrocket.server.call_server import CallServer
from pyrocket.server.gate import Gate
from pyrocket.server.incoming import Incoming, Origin
from pyrocket.server.messaging.long_polls import LongPolls
from pyrocket.server.messaging.sessions import Session, Stream
from pyrocket.server.service import Answers, Call, call_of, calls_of
from pyrocket.server.threads import Work
from pyrocket.values.consuming import Pull, PullStatus, RawPulled, Subscription
from pyrocket.values.message import MessageQueue, OutgoingMessage, SendResult
from pyrocket.values.transactions import LocalTransactionState, Undecided
from pyrocket.wire.descriptors import message_class, service
from pyrocket.wire.messages import put

SERVICE = "pyrocket.v1.Clients"

_PULLED_BYTES = 3 << 20
"""Memory reserved for the messages of a pull: most have 256 KiB, one message has up to 4 MiB."""


@dataclass(frozen=True)
class Notification:
    """A group whose members or subscriptions have changed, or a half message to be decided."""

    group: str = ""
    check: Undecided | None = None


@dataclass(frozen=True)
class _Looked:
    """The result of a pull.

    `messages` is empty only if there are no new messages; `LongPolls.wait` then repeats the pull.
    """

    reply: RawPulled
    has_more: bool = False

    @property
    def messages(self) -> Sequence[Any]:
        return () if self.reply.status is PullStatus.NO_NEW_MSG else (self.reply,)


class Locked(NamedTuple):
    """The reply to `LockQueues`: the queues that are locked, and those that were before."""

    value: Sequence[MessageQueue]
    renewed: Sequence[MessageQueue]


class ClientCalls:
    """The calls, except `Notifications`, and those of their methods that the broker lacks."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._consumers = broker, broker.consumers

    def calls(self) -> dict[str, Call]:
        """Return the calls by their names."""
        consumers, producers = self._consumers, self._broker.producers
        reads: Answers = {
            "StartOffset": consumers.start_offset,
            "LeaveGroup": consumers.members.unregister,
            "GroupMembers": self.group_members,
            "CheckFilter": self.check_filter,
            "UnlockQueues": consumers.unlock,
            "PullQueue": self.pull_queue,
            "CommittedOffset": consumers.committed,
        }
        writes: Answers = {
            "CreateMissing": producers.create_missing,
            "SendHalf": self.send_half,
            "EndHalf": self.end_half,
            "JoinGroups": consumers.heartbeat,
            "GroupStarts": consumers.group_starts,
            "LockQueues": self.lock_queues,
            "CommitOffsets": consumers.commit,
            "SendBack": consumers.send_back,
        }
        sends: Answers = {"SendMessages": self.send_messages}
        return calls_of(SERVICE, {Work.READ: reads, Work.WRITE: writes, Work.SEND: sends})

    def send_messages(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], born_host: Host
    ) -> "Future[list[SendResult]]":
        """Append messages; see `ProducerCalls.send`."""
        inflation = Inflation(self._broker.store.config.max_message_bytes)
        for message in messages:
            _check_body(message, inflation)
        return self._broker.producers.send(queue, messages, born_host)

    def send_half(
        self,
        group: str,
        queue: MessageQueue,
        message: OutgoingMessage,
        immunity_s: int | None,
        born_host: Host,
    ) -> Undecided:
        """Store a half message; see `ProducerCalls.send_half`."""
        _check_body(message, Inflation(self._broker.store.config.max_message_bytes))
        return self._broker.producers.send_half(group, queue, message, immunity_s, born_host)

    def end_half(
        self, group: str, topic: str, transaction_id: str, state: LocalTransactionState
    ) -> None:
        """Commit or roll back; see `BrokerTransactions.end`."""
        self._broker.transactions.end(topic, transaction_id, state, group)

    def group_members(self, group: str) -> list[str]:
        """Return the ids of a group's live members."""
        return self._consumers.members.ids(group, self._consumers.ages())

    def check_filter(self, topic: str, subscription: Subscription) -> None:
        """Compile an expression."""
        self._consumers.check_filter(subscription)

    def lock_queues(self, group: str, client_id: str, queues: Sequence[MessageQueue]) -> Locked:
        """Lock queues; see `Consumers.lock`."""
        granted = self._consumers.lock(group, client_id, queues)
        return Locked([*granted], [queue for queue in granted if granted[queue]])

    def pull_queue(
        self,
        queue: MessageQueue,
        group: str,
        offset: int,
        subscription: Subscription,
        max_messages: int,
        hold_ms: int,
    ) -> RawPulled:
        """Return messages without waiting for new ones; see `Pulls.pull`."""
        request = Pull(queue, group, offset, subscription, max_messages)
        return self._consumers.pulls.pull(request)


class ClientsService:
    """Serves the calls. Used by one event loop."""

    def __init__(self, broker: Broker, gate: Gate, server: CallServer, settings: Settings) -> None:
        self._broker, self._gate, self._server = broker, gate, server
        self._max_wait_s = settings.long_poll
        self._polls, self._session = LongPolls(broker), Session(("", SERVICE))
        self._streams: set[Stream] = set()
        self._calls = ClientCalls(broker).calls()
        method = service(SERVICE).methods_by_name["Notifications"]
        self._watch = call_of(method, self._subscribe)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service."""
        server = self._server
        found = {name: server.handler_of(call) for name, call in self._calls.items()}
        found["PullQueue"] = server.handler("PullQueue", self._pull)
        found["Notifications"] = server.handler("Notifications", self._notify, streams=True)
        return grpc.method_handlers_generic_handler(SERVICE, found)

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
            found = _Looked(await run(partial(call.answer, **asked)))
            if not found.messages:
                incoming.hold(0)
            return found

        found = await look()
        hold_s = min(asked["hold_ms"] / 1000, self._max_wait_s)
        if not found.messages and hold_s > 0:
            await run(lambda: self._broker.polls)  # Created in a thread: it may wait for the disk.
            queue, deadline = asked["queue"], asyncio.get_running_loop().time() + hold_s
            place = asked["group"], queue.topic, queue.queue_id
            with incoming.parked():
                found = await self._polls.wait(place, self._session, deadline, look)
        return incoming.reply(await run(lambda: call.encode(found.reply)))

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
                leave = self._broker.consumers.members.unregister
                await asyncio.shield(
                    self._server.run(partial(leave, asked["client_id"], asked["group"]))
                )

    def _subscribe(
        self, group: str, producer_group: str, client_id: str, stream: Stream, origin: Origin
    ) -> Callable[[], None]:
        """Send the changes of a group, or the checks of a producer group, to the stream.

        Returns a function that ends the subscription.
        """
        if producer_group:

            def check(undecided: Undecided) -> bool:
                if not self._may_decide(origin, undecided):
                    return False
                return stream.offer(_encoded(Notification(check=undecided)))

            watch = self._broker.producers.watch_checks
            return watch(producer_group, check, lambda: max(stream.room, 0))

        def changed(name: str) -> None:
            if name == group:
                stream.offer(_encoded(Notification(group=name)))

        return self._broker.consumers.members.watch(changed)

    def _may_decide(self, origin: Origin, undecided: Undecided) -> bool:
        """Whether a user may send to the topic of a half message, and thus see the message."""
        message = undecided.message
        queue = MessageQueue(message.topic, undecided.broker, message.queue_id)
        try:
            self._gate.admit(origin._replace(needed=set()), "SendMessages", {"queue": queue})
        except PyrocketError:
            return False
        return True


def _encoded(notification: Notification) -> Any:
    message = message_class("pyrocket.v1.Notification")()
    put(message, notification)
    return message


def _check_body(message: OutgoingMessage, inflation: Inflation) -> None:
    """Raise MessageError (BODY_CORRUPT, BODY_TOO_LARGE) unless the body is plain or inflates."""
    if message.sys_flag == COMPRESSED_FLAGS:
        inflation.check(message.body)
    elif message.sys_flag:
        raise MessageError(
            f"the sysFlag {message.sys_flag} is not that of a plain or a compressed body.",
            remedy="Use a client of the same release as the broker.",
            code="BODY_CORRUPT",
        )
