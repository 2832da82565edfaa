"""What producers and consumers need from brokers: `ClientTransport`.

The core of the clients knows no protocol. There is an adapter for a broker library in the same
process and one for `pyrocket.v1`; a test's simulated network is a third.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from pyrocket.message import Message, MessageQueue, QueueOffsets, SendResult, StoredMessage


class PullStatus(str, Enum):
    """The outcome of a pull. Source: `PullStatus`."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class MessageModel(str, Enum):
    """Whether the members of a group share the queues, or each member consumes all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


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
class Subscription:
    """The messages of a topic that a group consumes.

    Attributes:
        expression: Tags separated by `||`, or an SQL92 expression; `*` selects all messages.
        kind: "TAG" or "SQL92".
        version: Increases with every change that the client makes.
    """

    expression: str = "*"
    kind: str = "TAG"
    version: int = 0


@dataclass(frozen=True)
class ConsumerData:
    """A consumer in a heartbeat. `subscriptions` are by topic."""

    group: str
    message_model: MessageModel
    consume_from: str
    subscriptions: Mapping[str, Subscription]


@dataclass(frozen=True)
class Heartbeat:
    """The groups of a client.

    Attributes:
        incarnation: A random text for each client object: two live clients of a group that have
            the same id but different incarnations are a configuration error.
    """

    client_id: str
    incarnation: str
    consumers: Sequence[ConsumerData] = ()
    producer_groups: Sequence[str] = ()


@dataclass(frozen=True)
class Pull:
    """A request for the messages of one queue from `offset` on.

    Attributes:
        hold_ms: How long the broker waits for a message if there is none.
    """

    queue: MessageQueue
    group: str
    offset: int
    subscription: Subscription
    max_messages: int = 32
    hold_ms: int = 0


@dataclass(frozen=True)
class Pulled:
    """The reply to a pull.

    Attributes:
        next_offset: The offset of the next pull: after all messages that were examined.
        available: The queue's minimum and maximum offset.
    """

    status: PullStatus
    next_offset: int
    available: QueueOffsets
    messages: Sequence[StoredMessage] = ()


@dataclass(frozen=True)
class Committed:
    """The reply to a commit of one queue: the queue's range, and the group's next offset."""

    minimum: int
    maximum: int
    next_offset: int


@dataclass(frozen=True)
class Changed:
    """A notification of a broker: the members or subscriptions of a group have changed."""

    broker: str
    group: str


class ClientTransport(Protocol):
    """The calls of producers and consumers, made in one event loop.

    Every call raises TransportError if it is not answered; the broker may have executed it. Calls
    that name no broker go to the broker of their queue.
    """

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic. Raises TopicNotFoundError."""
        ...

    async def brokers(self) -> Sequence[str]:
        """Return the names of all live brokers."""
        ...

    async def send(self, queue: MessageQueue, messages: Sequence[Message]) -> list[SendResult]:
        """Append all messages to one queue, or none. Raises MessageError, BrokerBusyError."""
        ...

    async def heartbeat(self, broker: str, heartbeat: Heartbeat) -> None:
        """Join or stay in the groups of a heartbeat.

        Raises InvalidInputError (DUPLICATE_CLIENT), GroupNotFoundError.
        """
        ...

    async def unregister(self, broker: str, client_id: str, group: str) -> None:
        """Leave a group."""
        ...

    async def members(self, broker: str, group: str) -> Sequence[str]:
        """Return the client ids of a group's live members."""
        ...

    async def check_filter(self, broker: str, topic: str, subscription: Subscription) -> None:
        """Compile an expression at a broker. Raises InvalidInputError with the parser's text."""
        ...

    async def lock(
        self, broker: str, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> Collection[MessageQueue]:
        """Lock queues of one broker for 60 s, and return those that were granted."""
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
        """Return the next offset that a group has committed for a queue; see `start_offset`."""
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
    ) -> None:
        """Copy a message to the group's retry topic, or to its dead-letter topic.

        delay_level: 0 for a delay that grows with the attempts; -1 for the dead-letter topic.
        """
        ...

    def watch(self, group: str, notify: Callable[[Changed], None]) -> Callable[[], None]:
        """Call `notify` in the event loop at each change of a group; return a function to stop."""
        ...

    async def close(self) -> None:
        """Disconnect. No call is made after this."""
        ...


@dataclass(frozen=True)
class Member:
    """The identity of a client in its groups; see `Heartbeat`."""

    client_id: str
    incarnation: str = field(repr=False)
