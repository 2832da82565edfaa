"""The values that consumers and brokers exchange: heartbeats, pulls and commits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from pyrocket.values.message import MessageQueue, QueueOffsets, StoredMessage


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
class GroupStart:
    """Where a group starts in those queues of a topic for which it has committed no offset.

    A broker stores it at the group's first contact with the topic, and never changes it. A start
    with neither attribute is only sent, and stands for the end of the broker's log.

    Attributes:
        log_offset: The messages at or after this offset of the log are consumed.
        time_ms: The store time of the first contact, in epoch milliseconds. Without `log_offset`,
            the messages stored at or after this time are consumed.
        end_offset: With a start by time that was not in the future: the end of the log at the first
            contact, or before it. Messages from there on are consumed whatever their store time,
            because the broker's clock may be set back.
    """

    log_offset: int | None = None
    time_ms: int | None = None
    end_offset: int | None = None

    def stored_at(self, end: "GroupStart") -> "GroupStart":
        """Return what is stored for this start, which was sent, at the current end of the log.

        The log may have been truncated since the client asked for its end.
        """
        if self == GroupStart() or (self.log_offset or 0) > (end.log_offset or 0):
            return end
        if self.end_offset is not None:
            return replace(self, end_offset=min(self.end_offset, end.log_offset or 0))
        if self.log_offset is None and (self.time_ms or 0) <= (end.time_ms or 0):
            return replace(self, end_offset=end.log_offset)
        return self


@dataclass(frozen=True)
class GroupStarts:
    """The starts of a group by topic at one broker, and the current end of the broker's log."""

    end: GroupStart
    starts: Mapping[str, GroupStart]


@dataclass(frozen=True)
class ConsumerData:
    """A consumer in a heartbeat.

    Attributes:
        subscriptions: By topic.
        starts: By topic; stored for those topics of which the broker has no start of the group.
    """

    group: str
    message_model: MessageModel
    consume_from: str
    subscriptions: Mapping[str, Subscription]
    starts: Mapping[str, GroupStart] = field(default_factory=dict)


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


class GroupPosition(NamedTuple):
    """Where a group continues in a queue.

    Attributes:
        offset: The next offset.
        epoch: The epoch of the log in which the offset was learned; see `Store.history`. A recovery
            may have truncated the queue since then, so that other messages have this offset.
            None if unknown.
    """

    offset: int
    epoch: int | None = None


@dataclass(frozen=True)
class Pull:
    """A request for the messages of one queue from `offset` on.

    Attributes:
        epoch: The epoch in which the offset was learned; see `GroupPosition`.
        hold_ms: How long the broker waits for a message if there is none.
    """

    queue: MessageQueue
    group: str
    offset: int
    subscription: Subscription
    max_messages: int = 32
    hold_ms: int = 0
    epoch: int | None = None


@dataclass(frozen=True)
class Pulled:
    """The reply to a pull.

    Attributes:
        next_offset: The offset of the next pull: after all messages that were examined.
        available: The queue's minimum and maximum offset.
        epoch: The epoch of the log, in which `next_offset` is valid.
    """

    status: PullStatus
    next_offset: int
    available: QueueOffsets
    messages: Sequence[StoredMessage] = ()
    epoch: int | None = None


@dataclass(frozen=True)
class RawPulled:
    """The reply to a pull as brokers send it; see `Pulled`.

    Attributes:
        records: The messages as they are in the log; see `formats.record_decode.messages_of`.
    """

    status: PullStatus
    next_offset: int
    available: QueueOffsets
    records: Sequence[bytes] = ()
    epoch: int | None = None


@dataclass(frozen=True)
class Locked:
    """The reply to a lock of queues.

    Attributes:
        value: The queues that the client has locked.
        renewed: Those that it had locked before, without interruption.
    """

    value: Sequence[MessageQueue]
    renewed: Sequence[MessageQueue]


@dataclass(frozen=True)
class Committed:
    """The reply to a commit of one queue: the queue's range, and the group's next offset."""

    minimum: int
    maximum: int
    next_offset: int
