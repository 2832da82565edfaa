"""The exceptions that pyrocket raises, with their main codes.

PyrocketError                      code, what happened, remedy
├── InvalidInputError              the caller's arguments are invalid
│   ├── OptionError                OPTION_*: an unknown, missing or malformed option;
│   │                              RETENTION_DIFFERS
│   ├── SchemaError                SCHEMA_INVALID, COLUMN_*: columns or types that do not fit
│   ├── TopicNameError             TOPIC_ILLEGAL
│   ├── TopicNotFoundError         TOPIC_NOT_FOUND
│   ├── QueueNotFoundError         QUEUE_NOT_FOUND
│   ├── GroupNameError             GROUP_ILLEGAL
│   ├── GroupNotFoundError         GROUP_NOT_FOUND
│   ├── MessageIdError             MESSAGE_ID_ILLEGAL
│   ├── MessageNotFoundError       MESSAGE_NOT_FOUND
│   ├── MessageError               MESSAGE_ILLEGAL, BODY_TOO_LARGE, PROPERTIES_SIZE_EXCEEDED,
│   │                              DELAY_TWICE, TIMER_TOO_FAR
│   └── StoreNotFoundError         STORE_NOT_FOUND, STORE_NOT_A_DIRECTORY, STORE_PATH
├── DataLossError                  requested offsets that the store does not have
│   ├── OffsetOutOfRangeError      OFFSET_OUT_OF_RANGE
│   ├── LogTruncatedError          LOG_TRUNCATED: recovery removed messages already read
│   └── TopicRecreatedError        TOPIC_RECREATED
├── SinkError                      a batch cannot be published exactly once
│                                  SINK_BATCH_BEHIND, SINK_BATCH_DIFFERS, SINK_BATCH_GAP,
│                                  SINK_FENCED, SINK_NO_IDENTITY, SINK_STORE_CHANGED, TOPIC_CHANGED
├── TransactionError               a half message cannot be committed or rolled back:
│                                  TRANSACTION_NOT_FOUND, _ENDED, _GROUP_WRONG, _OFFSET_WRONG,
│                                  _TOO_LATE, _TOPIC_GONE
├── StoreDamagedError              STORE_DAMAGED: bytes on disk that break the format;
│   │                              LOG_DAMAGED: a damaged record before durable messages
│   └── RecordDamagedError         one damaged record; those after it can be read
└── StoreUnavailableError          the store cannot serve this now
    ├── StoreLockedError           STORE_IN_USE, LOCK_TIMEOUT
    ├── StoreNotSharedError        STORE_NOT_SHARED: another machine sees another store
    ├── StoreReadOnlyError         STORE_READ_ONLY
    ├── StorePermissionError       PERMISSION_DENIED: no permission; also a PermissionError
    │   └── NotAuthenticatedError  UNAUTHENTICATED: a broker does not know the user
    ├── StoreFailedError           STORE_FAILED: a write or fsync failed; open it again
    ├── TransportError             TRANSPORT_FAILED: a broker is unreachable or too slow
    ├── BrokerBusyError            TOO_MANY_REQUESTS: repeat the call later
    └── UnsupportedError           UNSUPPORTED_*: an unsupported version or platform;
        │                          STORE_NEWER: a file was written by a later release
        └── PackageMissingError    PACKAGE_MISSING: an extra is not installed; also a
                                   ModuleNotFoundError
"""

from enum import Enum
from functools import partial


class FailedSend(Enum):
    """What an error says about the messages of the send that failed with it."""

    STORED = "stored"
    """They are stored: another attempt would store them again."""

    REFUSED = "refused"
    """They are not stored, and another attempt would fail as well."""

    STALE_ROUTE = "stale route"
    """They are not stored; an attempt with the current route of the topic can succeed."""

    UNKNOWN = "unknown"
    """They may be stored. Another attempt can succeed, and may store them again."""


_FAILED_SEND = {
    "QUEUES_NOT_WRITTEN": FailedSend.STORED,
    "FLUSH_DISK_TIMEOUT": FailedSend.STORED,
    "FLUSH_SLAVE_TIMEOUT": FailedSend.STORED,
    "SLAVE_NOT_AVAILABLE": FailedSend.STORED,
    "TOPIC_NOT_FOUND": FailedSend.STALE_ROUTE,
    "TOPIC_CHANGED": FailedSend.STALE_ROUTE,
    "TOPIC_NOT_WRITABLE": FailedSend.STALE_ROUTE,
    "QUEUE_NOT_FOUND": FailedSend.STALE_ROUTE,
}
"""By code; all other codes have the default of their class."""

_PUT_STATUS = {
    "PROPERTIES_SIZE_EXCEEDED": "PROPERTIES_SIZE_EXCEEDED",
    "FLUSH_DISK_TIMEOUT": "FLUSH_DISK_TIMEOUT",
    "LOCK_TIMEOUT": "OS_PAGECACHE_BUSY",
    "TIMER_TOO_FAR": "WHEEL_TIMER_MSG_ILLEGAL",
}


class PyrocketError(Exception):
    """Base of all exceptions: a code, what happened, and a remedy.

    `code` is stable and safe to match on; `remedy` tells the user how to solve the problem.
    `put_status` is RocketMQ's PutMessageStatus for an append that failed with this error, and
    `failed_send` decides whether the send is repeated.
    """

    default_code = "PYROCKET_ERROR"
    default_put_status = "UNKNOWN_ERROR"
    default_failed_send = FailedSend.UNKNOWN

    def __init__(self, message: str, *, remedy: str = "", code: str | None = None) -> None:
        self.code = code or self.default_code
        self.message = message
        self.remedy = remedy
        super().__init__(f"[{self.code}] {message}" + (f" {remedy}" if remedy else ""))

    @property
    def put_status(self) -> str:
        """The PutMessageStatus that a RocketMQ broker returns in this case."""
        return _PUT_STATUS.get(self.code, self.default_put_status)

    @property
    def failed_send(self) -> FailedSend:
        """What the error says about the messages of the send that failed with it."""
        return _FAILED_SEND.get(self.code, self.default_failed_send)

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: Spark passes exceptions between processes."""
        return (_rebuild, (type(self), self.message, self.remedy, self.code))


def _rebuild(
    kind: type[PyrocketError], message: str, remedy: str, code: str | None
) -> PyrocketError:
    return kind(message, remedy=remedy, code=code)


class InvalidInputError(PyrocketError):
    """The caller's arguments are wrong."""

    default_code = "INVALID_INPUT"
    default_failed_send = FailedSend.REFUSED


class OptionError(InvalidInputError):
    """An option is unknown, missing or malformed."""

    default_code = "OPTION_INVALID"


class SchemaError(InvalidInputError):
    """Columns are missing, unknown, or of the wrong type."""

    default_code = "SCHEMA_INVALID"


class TopicNameError(InvalidInputError):
    """A topic name breaks RocketMQ's rules or is reserved."""

    default_code = "TOPIC_ILLEGAL"


class TopicNotFoundError(InvalidInputError):
    """The topic does not exist in this store."""

    default_code = "TOPIC_NOT_FOUND"


class QueueNotFoundError(InvalidInputError):
    """The topic has no such queue."""

    default_code = "QUEUE_NOT_FOUND"


class GroupNameError(InvalidInputError):
    """A consumer group's name breaks RocketMQ's rules."""

    default_code = "GROUP_ILLEGAL"


class GroupNotFoundError(InvalidInputError):
    """The store has no such consumer group."""

    default_code = "GROUP_NOT_FOUND"


class MessageIdError(InvalidInputError):
    """A string is not a valid message id."""

    default_code = "MESSAGE_ID_ILLEGAL"


class MessageNotFoundError(InvalidInputError):
    """The store has no message with this id; it may have been deleted."""

    default_code = "MESSAGE_NOT_FOUND"


class MessageError(InvalidInputError):
    """A message exceeds a limit, or contains bytes that the format cannot store."""

    default_code = "MESSAGE_ILLEGAL"
    default_put_status = "MESSAGE_ILLEGAL"


class StoreNotFoundError(InvalidInputError):
    """There is no store at this path."""

    default_code = "STORE_NOT_FOUND"


class DataLossError(PyrocketError):
    """The store does not have the requested offsets."""

    default_code = "DATA_LOSS"
    default_failed_send = FailedSend.REFUSED


class OffsetOutOfRangeError(DataLossError):
    """A queue offset is below the queue's minimum or above its maximum."""

    default_code = "OFFSET_OUT_OF_RANGE"


class LogTruncatedError(DataLossError):
    """A recovery truncated messages that had already been read."""

    default_code = "LOG_TRUNCATED"


class TopicRecreatedError(DataLossError):
    """The topic was deleted and created again after the offset was saved."""

    default_code = "TOPIC_RECREATED"


class SinkError(PyrocketError):
    """A batch cannot be published exactly once; none of its rows are visible."""

    default_code = "SINK_REFUSED"
    default_failed_send = FailedSend.REFUSED


class TransactionError(PyrocketError):
    """A half message cannot be committed or rolled back as requested; nothing was written."""

    default_code = "TRANSACTION_REFUSED"
    default_failed_send = FailedSend.REFUSED


class StoreDamagedError(PyrocketError):
    """Bytes on disk are damaged; the message names the file and the position."""

    default_code = "STORE_DAMAGED"


REBUILD_QUEUES = (
    "To rebuild `consumequeue/` from the log: close the store everywhere and run `pyrocket repair`"
    " on its directory."
)
"""The remedy if an index is damaged and the log is intact."""

VERIFY_FIRST = (
    "Run `pyrocket verify` on the store: it shows whether `pyrocket repair` can fix this, as for"
    " a damaged queue, or a log file must be restored from a backup."
)
"""The remedy if a reader cannot tell whether the log or an index is damaged."""


class RecordDamagedError(StoreDamagedError):
    """One record of the log cannot be read; the records after it can."""


KEEP_WHAT_FOLLOWS = (
    "Nothing has been changed, and everything else can still be read. Restore the file from a"
    " backup, or run `pyrocket repair`, which skips the damage and keeps all other messages."
)
"""The remedy if the log is damaged before messages that were durable."""

PLACEHOLDER = "the message was damaged, and `pyrocket repair` has put a placeholder there"
RESTORE_DAMAGED = "Restore the log file from a backup made before the damage, or skip the message."
"""Error and remedy for a message that was damaged and repaired."""

RESTORE_FILE = "Restore it from a backup; nothing has been changed."
"""The remedy if a log file is missing or has the wrong length."""


class StoreUnavailableError(PyrocketError):
    """The store cannot serve this request now."""

    default_code = "STORE_UNAVAILABLE"
    default_put_status = "SERVICE_NOT_AVAILABLE"


class StoreLockedError(StoreUnavailableError):
    """Another process holds the store's lock, or the write lock was not free in time."""

    default_code = "STORE_IN_USE"


class StoreNotSharedError(StoreUnavailableError):
    """A Spark task finds a different directory, or none, at the store's path."""

    default_code = "STORE_NOT_SHARED"


class StoreReadOnlyError(StoreUnavailableError):
    """A write to a store that was opened read-only."""

    default_code = "STORE_READ_ONLY"


class StorePermissionError(StoreUnavailableError, PermissionError):
    """The user may not use a file or folder of the store."""

    default_code = "PERMISSION_DENIED"
    default_failed_send = FailedSend.REFUSED


class NotAuthenticatedError(StorePermissionError):
    """A broker does not know the caller: the credentials are missing or wrong."""

    default_code = "UNAUTHENTICATED"


class StoreFailedError(StoreUnavailableError):
    """A write or fsync failed; how much is durable is unknown until the store is opened again."""

    default_code = "STORE_FAILED"


class TransportError(StoreUnavailableError):
    """A call to a broker failed because of its connection or its deadline.

    The broker may have executed the call.

    Attributes:
        repeat_is_safe: Whether the same call can be repeated without being executed twice.
    """

    default_code = "TRANSPORT_FAILED"

    def __init__(
        self, message: str, *, repeat_is_safe: bool, remedy: str = "", code: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, code=code)
        self.repeat_is_safe = repeat_is_safe

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the attributes when pickled: Spark passes exceptions between processes."""
        rebuild = partial(
            type(self), repeat_is_safe=self.repeat_is_safe, remedy=self.remedy, code=self.code
        )
        return (rebuild, (self.message,))


class BrokerBusyError(StoreUnavailableError):
    """A broker cannot complete a call now; the same call can be repeated later."""

    default_code = "TOO_MANY_REQUESTS"


class UnsupportedError(StoreUnavailableError):
    """A version, platform or file system that pyrocket does not support."""

    default_code = "UNSUPPORTED"
    default_failed_send = FailedSend.REFUSED


class PackageMissingError(UnsupportedError, ModuleNotFoundError):
    """A package of an extra is not installed; `name` is the missing module."""

    default_code = "PACKAGE_MISSING"

    def __init__(
        self, message: str, *, remedy: str = "", code: str | None = None, name: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy, code=code)
        self.name = name
