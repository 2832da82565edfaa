"""What travels: a message to send, a stored message, and what a send returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message to append.

    `keys` are looked up by the index; none may contain a space or be empty. Empty `tags`, an empty
    `sharding_key` and a plain string `keys` that is empty count as none. With a `sharding_key` and
    no `queue_id`, equal keys go to the same queue, in order.

    With a `delay_level`, from 1 on, it is delivered so long after it is stored as the store's level
    says (those above the last are the last); with `deliver_at_ms`, epoch milliseconds, then or as
    soon after as somebody looks, and at once if that has passed. It can have one of the two. Until
    it is delivered no reader of the topic sees it.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    queue_id: int | None = None
    flag: int = 0
    delay_level: int = 0
    deliver_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """One record of the log, decoded; `body` is inflated, times are epoch milliseconds."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    properties: Mapping[str, str]
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    msg_id: str

    @property
    def tags(self) -> str | None:
        """The TAGS property, or None."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The KEYS property, split on spaces."""
        return tuple(filter(None, self.properties.get("KEYS", "").split(" ")))


class SendStatus(str, Enum):
    """RocketMQ's SendStatus. All four mean that the message is stored and will be read."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True)
class SendResult:
    """Where one message went. `msg_id` is its UNIQ_KEY, `offset_msg_id` the broker's id.

    Of a message to be delivered later `topic` and `queue_id` are those that it is for, and
    `queue_offset` and `physical_offset` where it waits, in a queue of RocketMQ's own; the record
    that is delivered has other offsets and the same `msg_id`.

    With `flush="sync"` a status other than SEND_OK says that it may not be durable.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    msg_id: str
    offset_msg_id: str
    status: SendStatus = SendStatus.SEND_OK


@dataclass(frozen=True)
class AppendResult:
    """What one batch append did: rows and log bytes written, and where the log ends now."""

    rows: int
    bytes: int
    log_end: int
    status: SendStatus = SendStatus.SEND_OK


class MessageQueue(NamedTuple):
    """A queue, as RocketMQ names it: queue ids count per topic and broker.

    Ordered by topic, broker and id; equal ones are equal keys of a mapping.

    Attributes:
        topic: The topic's name.
        broker: The name of the broker that has the queue, as `Store.broker_name`.
        queue_id: From 0 on.
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"topic {self.topic!r} queue {self.queue_id}"


@dataclass(frozen=True)
class QueueOffsets:
    """A queue's readable range: first offset still there, and one past the last."""

    minimum: int
    maximum: int


@dataclass(frozen=True)
class ByteSpan:
    """Where messages of a queue lie in the log: from the first to behind the last one.

    `bytes` is about how many are theirs; those of other queues lie between them.
    """

    start: int
    end: int
    bytes: int


@dataclass(frozen=True)
class LogMark:
    """A message that identifies everything before it in the log.

    Records are only ever appended, so a log that has this message at this place has all that was
    stored before it, too. An older copy of the log has not: `Store.holds` compares.

    log_offset: where the record begins. store_timestamp: epoch milliseconds. header_crc: CRC-32 of
    the record's first 88 bytes, since records of equal length begin at equal places in both logs.
    """

    log_offset: int
    store_timestamp: int
    header_crc: int


@dataclass(frozen=True)
class Position:
    """One look at the store's words: equal positions mean that nothing has changed."""

    published: int
    dispatched: int
    structure: int
