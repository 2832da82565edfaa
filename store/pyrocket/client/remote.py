"""`RemoteTransport`: the calls of producers and consumers to brokers, over `pyrocket.v1`.

The addresses are those of brokers, each of which may have queues of a topic, or those of name
servers. The first call tells which.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pyrocket.client.notifications import Notifications
from pyrocket.client.remote_broker import BROKER, CALL_S, RemoteBroker
from pyrocket.client.transport import Changed, TopicRoute
from pyrocket.consuming import Committed, Heartbeat, Pull, Pulled, PullStatus, Subscription
from pyrocket.errors import (
    PyrocketError,
    QueueNotFoundError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.formats.record_decode import messages_of
from pyrocket.message import MessageQueue, QueueOffsets, SendResult
from pyrocket.metadata.topics import TopicConfig, check_topic_name
from pyrocket.producing import OutgoingMessage
from pyrocket.rpc.connection import Credentials
from pyrocket.rpc.messages import values_of
from pyrocket.rpc.nameserver.lookup import AddressUrl, RouteLookup
from pyrocket.services.transactions.model import LocalTransactionState, Undecided

if TYPE_CHECKING:
    from pyrocket.rpc.proto.pyrocket_pb2 import HelloReply

_CONNECT_S = 5
_PULL_S = 15
"""Time after the hold of a pull until it counts as lost: 30 s in all, as in RocketMQ."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RemoteTransport:
    """The `ClientTransport` of one instance. Used by one event loop."""

    def __init__(self, addresses: Sequence[str] | AddressUrl, credentials: Credentials) -> None:
        """Clients call `open`."""
        self._addresses, self._credentials = addresses, credentials
        self._opened: dict[str, RemoteBroker] = {}
        self._hellos: dict[str, HelloReply] = {}
        self._address_of: dict[str, str] = {}
        self._lookup: RouteLookup | None = None
        self._notifications = Notifications(self._broker)

    @classmethod
    async def open(
        cls, addresses: Sequence[str] | AddressUrl, credentials: Credentials
    ) -> "RemoteTransport":
        """Connect to brokers or name servers.

        Raises TransportError if none can be reached, UnsupportedError, NotAuthenticatedError.
        """
        transport = cls(addresses, credentials)
        try:
            await transport._greet()
        except BaseException:
            await transport.close()
            raise
        return transport

    async def close(self) -> None:
        """Disconnect."""
        self._notifications.close()
        for broker in self._opened.values():
            await broker.close()
        if self._lookup is not None:
            await _blocking(self._lookup.close)

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic at all brokers that can be reached."""
        check_topic_name(topic)
        if self._lookup is not None:
            return await self._looked_up(self._lookup, topic)
        await self._greet()
        names = sorted(self._address_of)
        topics = await asyncio.gather(*(self._topic(name, topic) for name in names))
        found = {name: one for name, one in zip(names, topics, strict=True) if one is not None}
        if not found:
            raise _no_topic(topic)
        return _route(found)

    async def route_if_created(self, topic: str) -> TopicRoute:
        """Return the queues that a missing topic will have; see `ClientTransport`."""
        check_topic_name(topic)
        queues = {
            name: TopicConfig(topic, hello.default_queues, hello.default_queues)
            for name, address in self._address_of.items()
            if (hello := self._hellos.get(address)) is not None and hello.auto_create_topics
        }
        if not queues:
            raise _no_topic(topic)
        return _route(queues)

    async def brokers(self) -> Sequence[str]:
        """Return the names of all known brokers."""
        return sorted(self._address_of)

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendResult]:
        """Append all messages to one queue, or none."""
        sent = [_sendable(one) for one in messages]
        reply = await self._call(queue.broker, "SendMessages", queue=queue, messages=sent)
        results: list[SendResult] = _value(reply, list[SendResult])
        return results

    async def send_half(
        self,
        group: str,
        queue: MessageQueue,
        message: OutgoingMessage,
        immunity_s: int | None = None,
    ) -> Undecided:
        """Store a half message."""
        arguments = {"message": _sendable(message), "immunity_s": immunity_s}
        reply = await self._call(queue.broker, "SendHalf", group=group, queue=queue, **arguments)
        return Undecided(**values_of(reply, get_type_hints(Undecided)))

    async def end_transaction(
        self, undecided: Undecided, state: LocalTransactionState, *, from_check: bool
    ) -> None:
        """Commit or roll back a half message."""
        await self._call(
            undecided.broker,
            "EndHalf",
            group=undecided.half.group,
            topic=undecided.message.topic,
            transaction_id=undecided.half.transaction_id,
            state=state,
        )

    def watch_checks(self, group: str, ask: Callable[[Undecided], None]) -> Callable[[], None]:
        """Call `ask` for each half message to be decided; return a function to stop."""

        def received(broker: str, notification: Any) -> None:
            if notification is not None and notification.HasField("check"):
                hints = get_type_hints(Undecided)
                ask(Undecided(**values_of(notification.check, hints)))

        return self._notifications.watch(received, group="", producer_group=group)

    async def heartbeat(self, broker: str, heartbeat: Heartbeat) -> None:
        """Join or stay in the groups of a heartbeat."""
        await self._call(broker, "JoinGroups", heartbeat=heartbeat)

    async def unregister(self, broker: str, client_id: str, group: str) -> None:
        """Leave a group."""
        await self._call(broker, "LeaveGroup", client_id=client_id, group=group)

    async def members(self, broker: str, group: str) -> Sequence[str]:
        """Return the client ids of a group's live members."""
        found: list[str] = _value(await self._call(broker, "GroupMembers", group=group), list[str])
        return found

    async def check_filter(self, broker: str, topic: str, subscription: Subscription) -> None:
        """Compile an expression at a broker."""
        await self._call(broker, "CheckFilter", topic=topic, subscription=subscription)

    async def lock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> Collection[MessageQueue]:
        """Lock queues, and return those that were granted."""
        arguments = {"group": group, "client_id": client_id, "queues": queues}
        granted: list[MessageQueue] = _value(
            await self._call(broker, "LockQueues", **arguments), list[MessageQueue]
        )
        return granted

    async def unlock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> None:
        """Release locks."""
        arguments = {"group": group, "client_id": client_id, "queues": queues}
        await self._call(broker, "UnlockQueues", **arguments)

    async def pull(self, request: Pull) -> Pulled:
        """Return messages of a queue."""
        broker, seconds = self._broker(request.queue.broker), request.hold_ms / 1000 + _PULL_S
        reply = await broker.call_and_wait(
            "PullQueue",
            seconds,
            queue=request.queue,
            group=request.group,
            offset=request.offset,
            subscription=request.subscription,
            max_messages=request.max_messages,
            hold_ms=request.hold_ms,
        )
        available = QueueOffsets(reply.available.minimum, reply.available.maximum)
        messages = messages_of(reply.records)
        return Pulled(PullStatus(reply.status), reply.next_offset, available, messages)

    async def bounds(self, queue: MessageQueue) -> QueueOffsets:
        """Return the minimum and maximum offset of a queue."""
        reply = await self._ask(queue.broker, "Bounds", topics=[queue.topic])
        found: dict[MessageQueue, QueueOffsets] = _value(reply, dict[MessageQueue, QueueOffsets])
        if queue not in found:
            raise QueueNotFoundError(f"{queue} does not exist.", remedy="Ask for the queues again.")
        return found[queue]

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        reply = await self._ask(queue.broker, "OffsetsAt", times_ms={queue: time_ms})
        return int(_value(reply, dict[MessageQueue, int])[queue])

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset that a group has committed for a queue."""
        reply = await self._call(queue.broker, "CommittedOffset", group=group, queue=queue)
        return reply.value if reply.HasField("value") else None

    async def commit(
        self, group: str, client_id: str, incarnation: str, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, Committed]:
        """Commit offsets for queues of one broker."""
        (broker,) = {queue.broker for queue in offsets}
        reply = await self._call(
            broker,
            "CommitOffsets",
            group=group,
            client_id=client_id,
            incarnation=incarnation,
            offsets=offsets,
        )
        committed: dict[MessageQueue, Committed] = _value(reply, dict[MessageQueue, Committed])
        return committed

    async def send_back(
        self,
        group: str,
        queue: MessageQueue,
        queue_offset: int,
        delay_level: int,
        max_reconsume_times: int,
    ) -> None:
        """Copy a message to the group's retry topic, or to its dead-letter topic."""
        await self._call(
            queue.broker,
            "SendBack",
            group=group,
            queue=queue,
            queue_offset=queue_offset,
            delay_level=delay_level,
            max_reconsume_times=max_reconsume_times,
        )

    def watch(self, group: str, notify: Callable[[Changed], None]) -> Callable[[], None]:
        """Call `notify` at each change of a group; return a function to stop."""

        def received(broker: str, notification: Any) -> None:
            notify(Changed(broker, group))

        return self._notifications.watch(received, group=group, producer_group="")

    async def _greet(self) -> None:
        """Make the first call to each address that has not answered one.

        Raises the error of the last address if no address has answered.
        """
        failure: PyrocketError | None = None
        for address in await self._current():
            if address in self._hellos:
                continue
            try:
                hello = await self._at(address).hello(_CONNECT_S)
            except UnsupportedError as error:
                if error.code != "PROTOCOL_UNKNOWN":
                    raise
                self._lookup = RouteLookup(self._addresses, self._credentials)
                return
            except TransportError as error:
                failure = error
                continue
            self._hellos[address] = hello
            self._locate(hello.broker, address)
        if failure is not None and not self._hellos:
            raise failure

    async def _current(self) -> Sequence[str]:
        if isinstance(self._addresses, AddressUrl):
            return await _blocking(self._addresses.current)
        return self._addresses

    async def _looked_up(self, lookup: RouteLookup, topic: str) -> TopicRoute:
        found = await _blocking(partial(lookup.route, topic, fresh=True))
        for broker in found.brokers:
            self._locate(broker.name, broker.addresses[min(broker.addresses)])
        if not found.queues:
            raise _no_topic(topic)
        return _route({one.broker: one.topic for one in found.queues})

    async def _topic(self, broker: str, topic: str) -> TopicConfig | None:
        """Return a topic of a broker; None if it does not have it, or cannot be reached while
        others can.
        """
        try:
            reply = await self._ask(broker, "Topic", name=topic)
        except TopicNotFoundError:
            return None
        except TransportError as error:
            if len(self._address_of) == 1:
                raise
            _log.warning("the queues of %s at %s are left out: %s", topic, broker, error)
            return None
        found: TopicConfig = _value(reply, TopicConfig)
        return found

    def _locate(self, broker: str, address: str) -> None:
        """Note the address of a broker; follow its notifications if it is new."""
        is_new = self._address_of.get(broker) != address
        self._address_of[broker] = address
        if is_new:
            self._notifications.add(broker)

    def _broker(self, name: str) -> RemoteBroker:
        """Return a broker by name; "" is the only one. Raises TransportError if it is unknown."""
        if not name and len(self._address_of) == 1:
            (name,) = self._address_of
        address = self._address_of.get(name)
        if address is None:
            raise TransportError(
                f"the address of the broker {name!r} is unknown.",
                remedy="Check that it runs, and that it is registered with the name servers.",
                repeat_is_safe=True,
            )
        return self._at(address)

    def _at(self, address: str) -> RemoteBroker:
        if address not in self._opened:
            self._opened[address] = RemoteBroker(address, self._credentials)
        return self._opened[address]

    async def _call(self, broker: str, call: str, /, **arguments: Any) -> Any:
        return await self._broker(broker).call(call, **arguments)

    async def _ask(self, broker: str, call: str, /, **arguments: Any) -> Any:
        """Make a call of the bulk service."""
        return await self._broker(broker).call(call, BROKER, CALL_S, **arguments)


def _route(topics: Mapping[str, Any]) -> TopicRoute:
    """Return the route of a topic, whose settings are given by broker."""
    readable, writable = [], []
    for broker, topic in sorted(topics.items()):
        if topic.readable:
            readable += [MessageQueue(topic.name, broker, one) for one in range(topic.read_queues)]
        if topic.writable:
            writable += [MessageQueue(topic.name, broker, one) for one in range(topic.write_queues)]
    return TopicRoute(readable, writable)


def _sendable(outgoing: OutgoingMessage) -> OutgoingMessage:
    """Return a message whose body is sent once, and whose keys are a sequence."""
    message = outgoing.message
    keys = message.keys.split() if isinstance(message.keys, str) else message.keys
    return replace(outgoing, message=replace(message, body=b"", keys=keys))


def _value(reply: Any, kind: Any) -> Any:
    return values_of(reply, {"value": kind})["value"]


def _no_topic(topic: str) -> TopicNotFoundError:
    return TopicNotFoundError(
        f"no broker has the topic {topic!r}.", remedy="Create it: pyrocket topic create."
    )


async def _blocking(call: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(None, call)
