"""`RemoteTransport`: the calls of producers and consumers to brokers, over `pyrocket.v1`.

The addresses are those of brokers, each of which may have queues of a topic, or those of name
servers. The answer to the first call shows which.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pyrocket.client.transport import Changed, TopicRoute
from pyrocket.errors import PyrocketError, QueueNotFoundError, TopicNotFoundError
from pyrocket.formats.record_decode import messages_of
from pyrocket.metadata.topics import check_topic_name, similar_to
from pyrocket.remote.broker import CALL_S
from pyrocket.remote.brokers import RemoteBrokers, TopicSettings
from pyrocket.remote.lookup import AddressUrl
from pyrocket.remote.notifications import Notifications
from pyrocket.values.consuming import (
    Committed,
    GroupStart,
    GroupStarts,
    Heartbeat,
    Pull,
    Pulled,
    PullStatus,
    Subscription,
)
from pyrocket.values.message import MessageQueue, OutgoingMessage, QueueOffsets, SendResult
from pyrocket.values.transactions import LocalTransactionState, Undecided
from pyrocket.wire.channel import SERVICE, Credentials
from pyrocket.wire.messages import values_of

if TYPE_CHECKING:
    from pyrocket.values.admin import GroupLag

_PULL_S = 15
"""Time after the hold of a pull until it counts as lost: 30 s in all, as in RocketMQ."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RemoteTransport:
    """The `ClientTransport` of one instance. Used by one event loop."""

    def __init__(self, brokers: RemoteBrokers) -> None:
        """Clients call `open`."""
        self._brokers = brokers
        self._notifications = Notifications(brokers.get)
        brokers.follow(self._notifications.add, self._notifications.remove)

    @classmethod
    async def open(
        cls, addresses: Sequence[str] | AddressUrl, credentials: Credentials
    ) -> "RemoteTransport":
        """Connect to brokers or name servers.

        Raises TransportError if none can be reached, UnsupportedError, NotAuthenticatedError.
        """
        brokers = RemoteBrokers(addresses, credentials)
        try:
            await brokers.find()
        except BaseException:
            await brokers.close()
            raise
        return cls(brokers)

    async def close(self) -> None:
        """Disconnect."""
        self._notifications.close()
        await self._brokers.close()

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic at all brokers that can be reached."""
        check_topic_name(topic)
        return _route(topic, await self._brokers.topics(topic))

    async def route_if_created(self, topic: str) -> TopicRoute:
        """Create a missing topic at all brokers that allow it; see `ClientTransport`."""
        check_topic_name(topic)
        return _route(topic, TopicSettings(await self._brokers.create(topic), {}))

    async def brokers(self) -> Sequence[str]:
        """Return the names of all brokers, also of those that were started later."""
        try:
            await self._brokers.find()
        except PyrocketError as error:
            _log.warning("only the brokers that are known are used: %s", error)
        return self._brokers.names

    async def similar_topics(self, topic: str) -> Sequence[str]:
        """Return existing topics whose names are similar to that of a missing one."""
        calls = [self._ask(broker, "Topics") for broker in self._brokers.names]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        known = [reply for reply in replies if not isinstance(reply, BaseException)]
        return similar_to(topic, {one.name for reply in known for one in reply.value})

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

        return self._notifications.watch(received, producer_group=group)

    async def heartbeat(self, broker: str, heartbeat: Heartbeat) -> bool:
        """Join or stay in the groups of a heartbeat."""
        renewed: bool = (await self._call(broker, "JoinGroups", heartbeat=heartbeat)).value
        return renewed

    async def group_starts(self, broker: str, group: str) -> GroupStarts:
        """Return the starts of a group that a broker has stored, and the end of its log."""
        reply = await self._call(broker, "GroupStarts", group=group)
        return GroupStarts(**values_of(reply, get_type_hints(GroupStarts)))

    async def start_offset(
        self, group: str, queue: MessageQueue, start: GroupStart | None = None
    ) -> int:
        """Return the offset at which a group starts to consume a queue."""
        arguments = {"group": group, "queue": queue, "start": start}
        offset: int = (await self._call(queue.broker, "StartOffset", **arguments)).value
        return offset

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
    ) -> Mapping[MessageQueue, bool]:
        """Lock queues; return those that were granted, with whether they were locked before."""
        arguments = {"group": group, "client_id": client_id, "queues": queues}
        reply = await self._call(broker, "LockQueues", **arguments)
        found = values_of(reply, dict.fromkeys(("value", "renewed"), list[MessageQueue]))
        return {queue: queue in found["renewed"] for queue in found["value"]}

    async def unlock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> None:
        """Release locks."""
        arguments = {"group": group, "client_id": client_id, "queues": queues}
        await self._call(broker, "UnlockQueues", **arguments)

    async def pull(self, request: Pull) -> Pulled:
        """Return messages of a queue."""
        broker, seconds = self._brokers.get(request.queue.broker), request.hold_ms / 1000 + _PULL_S
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

    async def lags(self, broker: str, group: str) -> "list[GroupLag]":
        """Return the lag of a group in each queue of a broker. Raises GroupNotFoundError."""
        from pyrocket.values.admin import GroupLag  # Loads the reader, which clients lack.

        reply = await self._ask(broker, "Lag", group=group)
        found: list[GroupLag] = _value(reply, list[GroupLag])
        return found

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
        failed_attempts: int = 1,
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
            failed_attempts=failed_attempts,
        )

    def watch(
        self, group: str, client_id: str, notify: Callable[[Changed], None]
    ) -> Callable[[], None]:
        """Call `notify` at each change of a group; return a function to stop."""

        def received(broker: str, notification: Any) -> None:
            notify(Changed(broker, group))

        return self._notifications.watch(received, group=group, client_id=client_id)

    async def _call(self, broker: str, call: str, /, **arguments: Any) -> Any:
        return await self._brokers.get(broker).call(call, **arguments)

    async def _ask(self, broker: str, call: str, /, **arguments: Any) -> Any:
        """Make a call of the bulk service."""
        return await self._brokers.get(broker).call(call, SERVICE, CALL_S, **arguments)


def _route(name: str, settings: TopicSettings) -> TopicRoute:
    """Return the route of a topic. Raises TopicNotFoundError if no broker has it.

    The queues to send to include those of ordered topics at brokers that are gone: a sharding key
    then selects the same queue as before, and a send to a queue of such a broker fails.
    """
    if not settings.live and not settings.gone:
        raise TopicNotFoundError(
            f"no broker has the topic {name!r}.", remedy="Create it: pyrocket topic create."
        )
    readable, writable = [], []
    for broker, topic in sorted({**settings.gone, **settings.live}.items()):
        if topic.readable and broker in settings.live:
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
