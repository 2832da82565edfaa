"""The types that a transactional producer, its listener and the store exchange."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pyrocket.formats.record_decode import Record
from pyrocket.message import SendStatus, StoredMessage


class LocalTransactionState(str, Enum):
    """The outcome of a local transaction, with RocketMQ's names for it."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class TransactionListener(Protocol):
    """The application's side of a transaction.

    Both methods get the message with the topic and queue it is meant for; its `msg_id` is the
    transaction id. An exception, or a result that is not a LocalTransactionState, counts as
    UNKNOWN.
    """

    def execute(self, message: StoredMessage, arg: Any) -> LocalTransactionState | None:
        """Execute the local transaction. The message is stored, but consumers do not see it yet."""
        ...

    def check(self, message: StoredMessage) -> LocalTransactionState | None:
        """Return the outcome of a local transaction that another process may have executed."""
        ...


@dataclass(frozen=True)
class TransactionSendResult:
    """The result of one transactional send.

    queue_id: in the message's topic. queue_offset, physical_offset: of the half message.
    status: of the half message's append. If it is not SEND_OK, the local transaction was not
        executed and the message is rolled back.
    state: what the listener returned. After UNKNOWN it will be asked again.
    error: why the decision could not be stored, or None. The listener will be asked again.
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
    """When half messages are checked (RocketMQ's settings and defaults), and how many at a time.

    timeout_ms: minimum age of a message before its first check (transactionTimeOut).
    interval_ms: time between two checks of one message (transactionCheckInterval).
    max_checks: a message that was checked so often is discarded (transactionCheckMax).
    max_hours: an older message is discarded (fileReservedTime).
    max_messages, max_append_bytes: of one round or append; other writers wait meanwhile.
    max_backlog: how far undecided messages of other groups may hold the half cursor back.
    """

    timeout_ms: int = 6_000
    interval_ms: int = 60_000
    max_checks: int = 15
    max_hours: float = 72
    max_messages: int = 2000
    max_append_bytes: int = 8 * 1024 * 1024
    max_backlog: int = 16_384


@dataclass(frozen=True)
class HalfMessageRef:
    """Identifies one half message, as returned by its send or given with a check request."""

    group: str
    queue_offset: int
    physical_offset: int
    transaction_id: str = ""


@dataclass(frozen=True)
class CheckRequest:
    """A half message for a listener to execute or to check.

    message: has the topic and queue that the half message is meant for.
    record: the half message as stored, if the caller has it.
    """

    half: HalfMessageRef
    message: StoredMessage
    record: Record | None = None
