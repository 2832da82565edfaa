"""What producers and consumers need from brokers: `ClientTransport`.

The core of the clients does not depend on a protocol. There is an adapter for a broker library in
the same process and one for `pyrocket.v1`; a test's simulated network is a third.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyrocket.values.consuming import (
    Committed,
    GroupStart,
    GroupStarts,
    Heartbeat,
    Pull,
    Pulled,
    Subscription,
)
from pyrocket.values.message import MessageQueue, OutgoingMessage, QueueOffsets, SendResult
from pyrocket.values.transactions import LocalTransactionState, Undecided


@dataclass(frozen=True)
class TopicRoute:
    """The queues of a topic at all live brokers, sorted.

    Attributes:
        readable: The queues to consume.
        writable: The queues to send to.
    """

    readable: Sequence[MessageQueue] = ()
    writable: Sequence[MessageQueue] = ()


@dataclass(frozen=True)
class Changed:
    """A notification of a broker: the members or subscriptions of a group have changed."""

    broker: str
    group: str


class ClientTransport(Protocol):
    """The calls of producers and consumers, made in one event loop.

    Every call raises TransportError if it is not answered; the broker may nevertheless have
    executed it. Calls for queues go to the broker of these queues.
    """

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic. Raises TopicNotFoundError."""
        ...

    async def route_if_created(self, topic: str) -> TopicRoute:
        """Return the queues of a missing topic at all brokers that create it.

        It is created by this call, or by the first message. Brokers that do not answer within a
        second are left out. Raises TopicNotFoundError if no broker creates topics, TopicNameError.
        """
        ...

    async def brokers(self) -> Sequence[str]:
        """Return the names of all live brokers."""
        ...

    async def similar_topics(self, topic: str) -> Sequence[str]:
        """Return existing topics whose names are similar to that of a missing one."""
        ...

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendResult]:
        """Append all messages to one queue, or none. Raises MessageError, BrokerBusyError."""
        ...

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
        ...

    async def end_transaction(
        self, undecided: Undecided, state: LocalTransactionState, *, from_check: bool
    ) -> None:
        """Commit or roll back a half message; UNKNOWN changes nothing. Raises TransactionError."""
        ...

    def watch_checks(self, group: str, ask: Callable[[Undecided], None]) -> Callable[[], None]:
        """Call `ask` in the event loop for each half message that a producer of the group shall
        decide; return a function to stop.
        """
        ...

    async def heartbeat(self, broker: str, heartbeat: Heartbeat) -> bool:
        """Join or stay in the groups of a heartbeat, and store their starts durably.

        Returns whether the client was a live member of all these groups before; False also after a
        restart of the broker. Raises InvalidInputError (DUPLICATE_CLIENT), GroupNotFoundError.
        """
        ...

    async def group_starts(self, broker: str, group: str) -> GroupStarts:
        """Return the starts of a group that a broker has stored, and the end of its log."""
        ...

    async def start_offset(
        self, group: str, queue: MessageQueue, start: GroupStart | None = None
    ) -> int:
        """Return the offset at which a group starts to consume a queue.

        This is the offset that the group has committed; if there is none, that of the first message
        at or after the stored start of the group, or without a stored start the queue's minimum.
        With `start`, only this start counts. Raises QueueNotFoundError.
        """
        ...

    async def unregister(self, broker: str, client_id: str, group: str) -> None:
        """Leave a group."""
        ...

    async def members(self, broker: str, group: str) -> Sequence[str]:
        """Return the client ids of a group's live members."""
        ...

    async def check_filter(self, broker: str, topic: str, subscription: Subscription) -> None:
        """Compile an expression at a broker. Raises InvalidInputError with the parser's message."""
        ...

    async def lock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> Mapping[MessageQueue, bool]:
        """Lock queues of one broker for 60 s; return the queues that were locked.

        The value of a queue is True if the client had locked it before, without interruption.
        """
        ...

    async def unlock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> None:
        """Release the locks of this client on queues of one broker."""
        ...

    async def pull(self, request: Pull) -> Pulled:
        """Return messages of a queue."""
        ...

    async def bounds(self, queue: MessageQueue) -> QueueOffsets:
        """Return the minimum and maximum offset of a queue. Raises QueueNotFoundError."""
        ...

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        ...

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset that a group has committed for a queue."""
        ...

    async def commit(
        self, group: str, client_id: str, incarnation: str, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, Committed]:
        """Commit offsets for queues of one broker; a commit never moves an offset back.

        Raises InvalidInputError (COMMIT_FENCED) if the client is not a live member of the group.
        """
        ...

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
        ...

    def watch(
        self, group: str, client_id: str, notify: Callable[[Changed], None]
    ) -> Callable[[], None]:
        """Call `notify` in the event loop at each change of a group; return a function to stop.

        A broker to which the connection of the watch is lost removes the client from the group.
        """
        ...

    async def close(self) -> None:
        """Disconnect. No call is made after this."""
        ...


@dataclass(frozen=True)
class Member:
    """The identity of a client in its groups; see `Heartbeat`."""

    client_id: str
    incarnation: str = field(repr=False)
