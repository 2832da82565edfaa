"""What a transactional producer, its listener and the store say to each other."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pyrocket.formats.record_decode import Record
from pyrocket.message import SendStatus, StoredMessage


class LocalTransactionState(str, Enum):
    """RocketMQ's LocalTransactionState: what became of a local transaction."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class TransactionListener(Protocol):
    """The application's side of a transaction.

    Both get the message with the topic and queue it is for; its `msg_id` is the transaction's id.
    An exception, or anything that is no LocalTransactionState, means UNKNOWN.
    """

    def execute(self, message: StoredMessage, arg: Any) -> LocalTransactionState | None:
        """Carry out the local transaction of a message that is stored, and not yet visible."""
        ...

    def check(self, message: StoredMessage) -> LocalTransactionState | None:
        """Say what became of the local transaction; maybe in another process than executed it."""
        ...


@dataclass(frozen=True)
class TransactionSendResult:
    """What became of one transactional send.

    queue_id: of the message's topic. queue_offset, physical_offset: of the half message.
    status: of the half message's send. Unless it is SEND_OK, nothing was executed, and the message
        is rolled back.
    state: what the listener said. UNKNOWN: it will be asked.
    error: why the decision could not be written, if so: the listener will be asked again.
    """

    topic: str
    queue_id: int
    transaction_id: str
    queue_offset: int
    physical_offset: int
    status: SendStatus
    state: LocalTransactionState
    error: Exception | None = None


@dataclass(frozen=True, kw_only=True)
class CheckPolicy:
    """When half messages are checked, RocketMQ's names and values in brackets.

    timeout_ms: how old one is before anybody is asked (transactionTimeOut).
    interval_ms: between two questions about one (transactionCheckInterval).
    most_checks: after so many it is discarded (transactionCheckMax).
    most_hours: older ones are discarded (fileReservedTime).
    """

    timeout_ms: int = 6_000
    interval_ms: int = 60_000
    most_checks: int = 15
    most_hours: float = 72


@dataclass(frozen=True)
class HalfMessageRef:
    """Names one half message, as whoever sent it or was asked about it knows it."""

    group: str
    queue_offset: int
    physical_offset: int
    transaction_id: str = ""


@dataclass(frozen=True)
class CheckRequest:
    """A half message that a listener is to execute or to check; `message` says whom it is for.

    `record` is what was stored, where that is at hand.
    """

    place: HalfMessageRef
    message: StoredMessage
    record: Record | None = None
