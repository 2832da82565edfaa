"""The calls of producers and consumers: `ClientTransport`, which makes them through an `Invoker`.

The core of the clients does not depend on a protocol. There is an invoker for a broker library in
the same process and one for `pyrocket.v1`; a test's simulated network is a third.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Protocol, TypeVar

from pyrocket.errors import QueueNotFoundError, TopicNotFoundError
from pyrocket.formats.record_decode import messages_of
from pyrocket.metadata.topics import check_topic_name, similar_to
from pyrocket.values.admin import GroupLag, TopicConfig
from pyrocket.values.consuming import (
    Committed,
    GroupPosition,
    GroupStart,
    GroupStarts,
    Heartbeat,
    Locked,
    Pull,
    Pulled,
    RawPulled,
    Subscription,
)
from pyrocket.values.message import MessageQueue, OutgoingMessage, QueueOffsets, SendResult
from pyrocket.values.routes import TopicSettings
from pyrocket.values.transactions import LocalTransactionState, Undecided

_T = TypeVar("_T")

OnNotification = Callable[[Undecided | None], None]
"""Called in the event loop with a half message to be decided; with None for a change of a group,
and after notifications may have been lost.
"""


@dataclass(frozen=True)
class TopicRoute:
    """The queues of a topic at all live brokers, sorted.

    Attributes:
        readable: The queues to consume.
        writable: The queues to send to.
    """

    readable: Sequence[MessageQueue] = ()
    writable: Sequence[MessageQueue] = ()


class Invoker(Protocol):
    """Makes calls to brokers in one event loop.

    Every call raises TransportError if it is not answered; the broker may nevertheless have
    executed it.
    """

    async def invoke(
        self, broker: str, call: str, reply: type[_T] | UnionType, /, **arguments: Any
    ) -> _T:
        """Make a call of `pyrocket.v1` and return the reply; `reply` is its type.

        The arguments are named like the fields of the request.
        """

    async def pull(self, request: Pull) -> Pulled:
        """Return messages of a queue; wait for new ones for the request's time."""

    async def brokers(self) -> Sequence[str]:
        """Return the names of all live brokers."""

    async def topics(self, topic: str) -> TopicSettings:
        """Return the settings of a topic at all brokers that have it."""

    async def create(self, topic: str) -> Mapping[str, TopicConfig]:
        """Return the settings of a missing topic at all brokers that create it."""

    def watch(
        self,
        received: OnNotification,
        *,
        group: str = "",
        client_id: str = "",
        producer_group: str = "",
    ) -> Callable[[], None]:
        """Follow the changes of a group of this client, or the checks of a producer group; return
        a function to stop.
        """

    async def close(self) -> None:
        """Disconnect. No call is made after this."""


class ClientTransport:
    """The calls of producers and consumers, made in one event loop.

    Every call raises TransportError if it is not answered; the broker may nevertheless have
    executed it. Calls for queues go to the broker of these queues.
    """

    def __init__(self, invoker: Invoker) -> None:
        """Make the calls through an invoker, which `close` closes."""
        self._invoker, self._invoke = invoker, invoker.invoke
        self.brokers, self.pull, self.close = invoker.brokers, invoker.pull, invoker.close

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic. Raises TopicNotFoundError."""
        return _route(topic, await self._invoker.topics(topic))

    async def route_if_created(self, topic: str) -> TopicRoute:
        """Return the queues of a missing topic at all brokers that create it.

        It is created by this call, or by the first message. Brokers that do not answer within a
        second are left out. Raises TopicNotFoundError if no broker creates topics, TopicNameError.
        """
        check_topic_name(topic)
        return _route(topic, TopicSettings(await self._invoker.create(topic), {}))

    async def similar_topics(self, topic: str) -> Sequence[str]:
        """Return existing topics whose names are similar to that of a missing one."""
        brokers = await self.brokers()
        calls = [self._invoke(broker, "Topics", list[TopicConfig]) for broker in brokers]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        known = [reply for reply in replies if not isinstance(reply, BaseException)]
        return similar_to(topic, {config.name for reply in known for config in reply})

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendResult]:
        """Append all messages to one queue, or none. Raises MessageError, BrokerBusyError."""
        return await self._invoke(
            queue.broker, "SendMessages", list[SendResult], queue=queue, messages=messages
        )

    async def send_half(
        self,
        group: str,
        queue: MessageQueue,
        message: OutgoingMessage,
        immunity_s: int | None = None,
    ) -> Undecided:
        """Store a message that consumers see when its transaction is committed.

        immunity_s: Time in which the group is not asked about it; None for the broker's default.
        """
        arguments = {"group": group, "queue": queue, "message": message, "immunity_s": immunity_s}
        return await self._invoke(queue.broker, "SendHalf", Undecided, **arguments)

    async def end_transaction(self, undecided: Undecided, state: LocalTransactionState) -> None:
        """Commit or roll back a half message; UNKNOWN changes nothing. Raises TransactionError."""
        await self._invoke(
            undecided.broker,
            "EndHalf",
            NoneType,
            group=undecided.half.group,
            topic=undecided.message.topic,
            transaction_id=undecided.half.transaction_id,
            state=state,
        )

    def watch_checks(self, group: str, ask: Callable[[Undecided], None]) -> Callable[[], None]:
        """Call `ask` in the event loop for each half message that a producer of the group shall
        decide; return a function to stop.
        """

        def received(undecided: Undecided | None) -> None:
            if undecided is not None:
                ask(undecided)

        return self._invoker.watch(received, producer_group=group)

    async def heartbeat(self, broker: str, heartbeat: Heartbeat) -> bool:
        """Join or stay in the groups of a heartbeat, and store their starts durably.

        Returns whether the client was a live member of all these groups before; False also after a
        restart of the broker. Raises InvalidInputError (DUPLICATE_CLIENT), GroupNotFoundError, and
        on a store in the same process StoreLockedError (GROUP_IN_USE).
        """
        return await self._invoke(broker, "JoinGroups", bool, heartbeat=heartbeat)

    async def group_starts(self, broker: str, group: str) -> GroupStarts:
        """Return the starts of a group that a broker has stored, and the end of its log."""
        return await self._invoke(broker, "GroupStarts", GroupStarts, group=group)

    async def start_offset(
        self, group: str, queue: MessageQueue, start: GroupStart | None = None
    ) -> GroupPosition:
        """Return where a group starts to consume a queue.

        This is the offset that the group has committed; if there is none, that of the first message
        at or after the stored start of the group, or without a stored start the queue's minimum.
        With `start`, only this start counts. Raises QueueNotFoundError.
        """
        return await self._invoke(
            queue.broker, "StartOffset", GroupPosition, group=group, queue=queue, start=start
        )

    async def unregister(self, broker: str, client_id: str, group: str) -> None:
        """Leave a group."""
        await self._invoke(broker, "LeaveGroup", NoneType, client_id=client_id, group=group)

    async def members(self, broker: str, group: str) -> Sequence[str]:
        """Return the client ids of a group's live members."""
        return await self._invoke(broker, "GroupMembers", list[str], group=group)

    async def check_filter(self, broker: str, topic: str, subscription: Subscription) -> None:
        """Compile an expression at a broker. Raises InvalidInputError with the parser's message."""
        await self._invoke(broker, "CheckFilter", NoneType, topic=topic, subscription=subscription)

    async def lock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> Mapping[MessageQueue, bool]:
        """Lock queues of one broker for 60 s; return the queues that were locked.

        The value of a queue is True if the client had locked it before, without interruption.
        """
        arguments = {"group": group, "client_id": client_id, "queues": queues}
        locked = await self._invoke(broker, "LockQueues", Locked, **arguments)
        return {queue: queue in locked.renewed for queue in locked.value}

    async def unlock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> None:
        """Release the locks of this client on queues of one broker."""
        arguments = {"group": group, "client_id": client_id, "queues": queues}
        await self._invoke(broker, "UnlockQueues", NoneType, **arguments)

    async def bounds(self, queue: MessageQueue) -> QueueOffsets:
        """Return the minimum and maximum offset of a queue. Raises QueueNotFoundError."""
        kind = dict[MessageQueue, QueueOffsets]
        bounds = await self._invoke(queue.broker, "Bounds", kind, topics=[queue.topic])
        if queue not in bounds:
            raise QueueNotFoundError(f"{queue} does not exist.", remedy="Ask for the queues again.")
        return bounds[queue]

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        kind = dict[MessageQueue, int]
        offsets = await self._invoke(queue.broker, "OffsetsAt", kind, times_ms={queue: time_ms})
        return offsets[queue]

    async def lags(self, broker: str, group: str) -> list[GroupLag]:
        """Return the lag of a group in each queue of a broker. Raises GroupNotFoundError."""
        return await self._invoke(broker, "Lag", list[GroupLag], group=group)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset that a group has committed for a queue."""
        arguments = {"group": group, "queue": queue}
        return await self._invoke(queue.broker, "CommittedOffset", int | None, **arguments)

    async def commit(
        self,
        group: str,
        client_id: str,
        incarnation: str,
        offsets: Mapping[MessageQueue, int],
        epoch: int | None = None,
    ) -> Mapping[MessageQueue, Committed]:
        """Commit offsets for queues of one broker; a commit never moves an offset back.

        epoch: That of the log in which the offsets were learned; see `GroupPosition`.

        Raises InvalidInputError (COMMIT_FENCED) if the client is not a live member of the group.
        """
        (broker,) = {queue.broker for queue in offsets}
        return await self._invoke(
            broker,
            "CommitOffsets",
            dict[MessageQueue, Committed],
            group=group,
            client_id=client_id,
            incarnation=incarnation,
            offsets=offsets,
            epoch=epoch,
        )

    async def send_back(
        self,
        group: str,
        queue: MessageQueue,
        queue_offset: int,
        delay_level: int,
        max_reconsume_times: int,
        failed_attempts: int = 1,
    ) -> None:
        """Copy a message to the group's retry topic, or to its dead-letter topic.

        delay_level: 0 for a delay that grows with the attempts; -1 for the dead-letter topic.
        failed_attempts: Those of this consumer, which a dead letter adds to the message's own.
        """
        await self._invoke(
            queue.broker,
            "SendBack",
            NoneType,
            group=group,
            queue=queue,
            queue_offset=queue_offset,
            delay_level=delay_level,
            max_reconsume_times=max_reconsume_times,
            failed_attempts=failed_attempts,
        )

    def watch(self, group: str, client_id: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` in the event loop at each change of the members or subscriptions of a
        group; return a function to stop.

        A broker to which the connection of the watch is lost removes the client from the group.
        """
        return self._invoker.watch(lambda _: notify(), group=group, client_id=client_id)


@dataclass(frozen=True)
class Member:
    """The identity of a client in its groups; see `Heartbeat`."""

    client_id: str
    incarnation: str = field(repr=False)


def pulled(reply: RawPulled) -> Pulled:
    """Return the reply to a pull with its messages; damaged ones are logged and left out."""
    messages = messages_of(reply.records)
    return Pulled(reply.status, reply.next_offset, reply.available, messages, reply.epoch)


def no_topic(topic: str, why: str = "there is no topic") -> TopicNotFoundError:
    """Return the error of a missing topic."""
    return TopicNotFoundError(f"{why} {topic!r}.", remedy="Create it: pyrocket topic create.")


def _route(name: str, settings: TopicSettings) -> TopicRoute:
    """Return the route of a topic. Raises TopicNotFoundError if no broker has it.

    The queues to send to include those of ordered topics at brokers that are gone: a sharding key
    then selects the same queue as before, and a send to a queue of such a broker fails.
    """
    if not settings.live and not settings.gone:
        raise no_topic(name, "no broker has the topic")
    readable, writable = [], []
    for broker, topic in sorted({**settings.gone, **settings.live}.items()):
        if topic.readable and broker in settings.live:
            readable += [
                MessageQueue(topic.name, broker, queue_id) for queue_id in range(topic.read_queues)
            ]
        if topic.writable:
            writable += [
                MessageQueue(topic.name, broker, queue_id) for queue_id in range(topic.write_queues)
            ]
    return TopicRoute(readable, writable)
