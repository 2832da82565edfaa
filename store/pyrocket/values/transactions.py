"""The types that a transactional producer, its listener and the store exchange."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pyrocket.values.message import SendStatus, StoredMessage


class LocalTransactionState(str, Enum):
    """The outcome of a local transaction, with RocketMQ's names for it."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class TransactionListener(Protocol):
    """The application's side of a transaction.

    Both methods receive the message with its real topic and queue; its `msg_id` is the transaction
    id. An exception, or a result that is not a LocalTransactionState, means UNKNOWN.
    """

    def execute(self, message: StoredMessage, arg: Any) -> LocalTransactionState | None:
        """Execute the local transaction. The message is stored, but consumers do not see it yet."""

    def check(self, message: StoredMessage) -> LocalTransactionState | None:
        """Return the outcome of a local transaction that another process may have executed."""


@dataclass(frozen=True)
class TransactionSendResult:
    """The result of one transactional send.

    queue_id: in the message's topic. queue_offset, physical_offset: of the half message.
    status: of the half message's append. If it is not SEND_OK, the local transaction was not
        executed and the message is rolled back.
    state: the listener's result. After UNKNOWN, the listener will be asked again.
    error: the error if the decision could not be stored, else None. After an error, the listener
        will be asked again.
    """

    topic: str
    queue_id: int
    transaction_id: str
    queue_offset: int
    physical_offset: int
    status: SendStatus
    state: LocalTransactionState
    error: Exception | None = None


@dataclass(frozen=True)
class HalfMessageRef:
    """Identifies a half message; returned by its send or contained in a check request."""

    group: str
    queue_offset: int
    physical_offset: int
    transaction_id: str = ""


@dataclass(frozen=True)
class Undecided:
    """A half message whose transaction is neither committed nor rolled back.

    Attributes:
        broker: The broker that stores it, and receives the decision.
        half: Identifies it at the broker.
        message: The message with its real topic and queue.
        status: Of its append.
    """

    broker: str
    half: HalfMessageRef
    message: StoredMessage
    status: SendStatus = SendStatus.SEND_OK


@dataclass(frozen=True, kw_only=True)
class CheckPolicy:
    """Times and limits of the checks of half messages, with RocketMQ's settings and defaults.

    timeout_ms: minimum age of a message before its first check (transactionTimeOut).
    interval_ms: time between two checks of one message (transactionCheckInterval).
    max_checks: number of checks after which a message is discarded (transactionCheckMax).
    max_hours: age after which a message is discarded (fileReservedTime).
    max_messages, max_append_bytes: limits of a round and an append; other writers wait for it.
    max_backlog: number of messages by which other groups may hold the half cursor back.
    """

    timeout_ms: int = 6_000
    interval_ms: int = 60_000
    max_checks: int = 15
    max_hours: float = 72
    max_messages: int = 2000
    max_append_bytes: int = 8 * 1024 * 1024
    max_backlog: int = 16_384
