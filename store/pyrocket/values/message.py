"""The values that callers and the store exchange: messages, results of sends, offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from pyrocket.errors import MessageError


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message to append.

    Messages can be looked up by their `keys`; a key may not be empty or contain a space. Empty
    `tags`, an empty `sharding_key` and an empty string as `keys` are treated as missing. With a
    `sharding_key` and no `queue_id`, equal keys are sent to the same queue, in order.

    A message with a `delay_level` of 1 or more is delivered after the delay of that level, or of
    the last level if there are fewer levels. A message with `deliver_at_ms` (epoch milliseconds) is
    delivered at that time or soon after, or at once if the time has passed. A message cannot have
    both. Until the message is delivered, no reader of the topic sees it.
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

    def __post_init__(self) -> None:
        """Raise MessageError (MESSAGE_ILLEGAL) unless the body is bytes."""
        if not isinstance(self.body, bytes):
            raise MessageError(
                f"the body is {type(self.body).__name__}.", remedy="Encode it: a body is bytes."
            )


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
    """RocketMQ's SendStatus. In all four cases the message is stored and readable."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True)
class SendResult:
    """The location of a stored message.

    `msg_id` is the message's UNIQ_KEY, `offset_msg_id` contains its log offset. For a delayed
    message, `topic` and `queue_id` are its destination, but `queue_offset` and `physical_offset`
    locate the pending message in its system topic. The delivered message has other offsets and the
    same `msg_id`.

    With `flush="sync"` a status other than SEND_OK means that the message may not be durable.
    `broker` is the name of the broker for `pyrocket.client`, whose queues can be at several
    brokers; otherwise empty.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    msg_id: str
    offset_msg_id: str
    status: SendStatus = SendStatus.SEND_OK
    broker: str = ""


@dataclass(frozen=True)
class AppendResult:
    """The result of a batch append: rows and log bytes written, and the log's new end."""

    rows: int
    bytes: int
    log_end: int
    status: SendStatus = SendStatus.SEND_OK


class MessageQueue(NamedTuple):
    """A queue identified as in RocketMQ: queue ids are unique per topic and broker.

    Queues are ordered by topic, broker and id, and are hashable.

    Attributes:
        topic: The topic's name.
        broker: The name of the broker that has the queue: `Store.broker_name`.
        queue_id: 0 or more.
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"topic {self.topic!r} queue {self.queue_id}"


@dataclass(frozen=True)
class QueueOffsets:
    """A queue's readable range: [minimum, maximum)."""

    minimum: int
    maximum: int


@dataclass(frozen=True, order=True)
class QueueRange:
    """The messages of one queue from `start` up to, not including, `end`.

    Attributes:
        epoch: The epoch of the log in which the queue had these messages; see `Store.history`. They
            are not read after a recovery has truncated the queue before `end`. None if unknown.
    """

    queue: MessageQueue
    start: int
    end: int
    epoch: int | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        """The number of messages."""
        return self.end - self.start


@dataclass(frozen=True)
class ByteSpan:
    """The range of the log that contains given messages of a queue.

    `bytes` is the approximate size of these messages; the range also contains messages of other
    queues.
    """

    start: int
    end: int
    bytes: int


@dataclass(frozen=True)
class LogMark:
    """A message that identifies everything before it in the log.

    Records are only appended, so a log that has this message at this offset also has everything
    that was stored before it, unlike an older copy of the log: see `Store.history.holds`.

    log_offset: start of the record. store_timestamp: epoch milliseconds. header_crc: CRC-32 of the
    record's first 88 bytes; the checksum distinguishes logs whose records have equal lengths and
    thus equal offsets.
    """

    log_offset: int
    store_timestamp: int
    header_crc: int


@dataclass(frozen=True, kw_only=True)
class SourceIdentity:
    """The store in which the offsets of one broker are valid.

    Attributes:
        store: The uuid of the store; empty if only brokers have written to it.
        epoch: The epoch of the log, which increases when a recovery truncates readable messages.
        mark: The newest message before the offsets; None if there is none. A store that was
            restored from an older copy does not have this message.
    """

    store: str
    epoch: int
    mark: LogMark | None = None


@dataclass(frozen=True)
class Position:
    """A snapshot of the shared state; two snapshots are equal if nothing has changed in between."""

    published: int
    dispatched: int
    structure: int


@dataclass(frozen=True)
class OutgoingMessage:
    """A message as a producer sends it; all attempts to send it have the same id.

    Attributes:
        message: The message. Its queue id is ignored: the call names the queue.
        body: The body as it is stored, which may be compressed.
        unique_id: UNIQ_KEY, the message id.
        born_timestamp: When it was sent first, in epoch milliseconds.
        sys_flag: Whether and how `body` is compressed.
    """

    message: Message
    body: bytes
    unique_id: str
    born_timestamp: int
    sys_flag: int = 0

    def as_sent(self) -> "OutgoingMessage":
        """Return the message as a request carries it: with one body, and a list of keys."""
        keys = self.message.keys or ()
        listed = [keys] if isinstance(keys, str) else keys
        return replace(self, message=replace(self.message, body=b"", keys=listed))
