"""RocketMQ's codes for the status of a reply."""

from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from pyrocket import errors
from pyrocket.errors import FailedSend, PyrocketError
from pyrocket.server.messaging.interface import new, number
from pyrocket.values.message import SendStatus

_MAX_TEXT = 600
_FAILED = "INTERNAL_SERVER_ERROR"


class RefusedError(Exception):
    """A call or a message is rejected with one of RocketMQ's codes."""

    def __init__(self, code: str, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(f"{code}: {text}")


_STORED_CODES = {
    SendStatus.SEND_OK: "OK",
    SendStatus.FLUSH_DISK_TIMEOUT: "MASTER_PERSISTENCE_TIMEOUT",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "SLAVE_PERSISTENCE_TIMEOUT",
    SendStatus.SLAVE_NOT_AVAILABLE: "HA_NOT_AVAILABLE",
}

_BY_ERROR_CODE = {
    "BODY_CORRUPT": "MESSAGE_CORRUPTED",
    "BODY_TOO_LARGE": "MESSAGE_BODY_TOO_LARGE",
    "PROPERTIES_SIZE_EXCEEDED": "MESSAGE_PROPERTIES_TOO_LARGE",
    "TIMER_TOO_FAR": "ILLEGAL_DELIVERY_TIME",
    "TOPIC_NOT_WRITABLE": "FORBIDDEN",
    "TRANSACTION_NOT_FOUND": "INVALID_TRANSACTION_ID",
    "TRANSACTION_ENDED": "INVALID_TRANSACTION_ID",
    "TRANSACTION_TOPIC_GONE": "TOPIC_NOT_FOUND",
    "TAGS_INVALID": "ILLEGAL_FILTER_EXPRESSION",
    "SQL_INVALID": "ILLEGAL_FILTER_EXPRESSION",
    "EXPRESSION_TOO_LONG": "ILLEGAL_FILTER_EXPRESSION",
    "LOCK_TIMEOUT": "TOO_MANY_REQUESTS",
}

_BY_ERROR: list[tuple[type[Exception], str]] = [
    (errors.StorePermissionError, "UNAUTHORIZED"),
    (errors.TopicNameError, "ILLEGAL_TOPIC"),
    (errors.TopicNotFoundError, "TOPIC_NOT_FOUND"),
    (errors.GroupNameError, "ILLEGAL_CONSUMER_GROUP"),
    (errors.GroupNotFoundError, "CONSUMER_GROUP_NOT_FOUND"),
    (errors.QueueNotFoundError, "NOT_FOUND"),
    (errors.MessageIdError, "ILLEGAL_MESSAGE_ID"),
    (errors.MessageNotFoundError, "NOT_FOUND"),
    (errors.OffsetOutOfRangeError, "ILLEGAL_OFFSET"),
    (errors.TransactionError, "INVALID_TRANSACTION_ID"),
    (errors.UnsupportedError, "UNSUPPORTED"),
    (errors.BrokerBusyError, "TOO_MANY_REQUESTS"),
    (errors.StoreUnavailableError, _FAILED),
    (errors.InvalidInputError, "BAD_REQUEST"),
    (DecodeError, "BAD_REQUEST"),
]
"""The first matching class determines the code; other errors are INTERNAL_SERVER_ERROR.

MESSAGE_NOT_FOUND is not used, because clients treat it as success. With a full disk or a store that
is not available, RocketMQ's proxy answers INTERNAL_SERVER_ERROR too; producers then try another
broker.
"""


def status(code: str, text: str = "") -> Any:
    """Return a status. Its text is never empty, because some clients print only the text."""
    return (
        new("Status", code=number("Code", code), message=text[:_MAX_TEXT]) if text else _plain(code)
    )


@cache
def _plain(code: str) -> Any:
    """Return a status whose text is the code. It can be shared, because replies copy it."""
    return new("Status", code=number("Code", code), message=code)


def stored_status(stored: SendStatus) -> Any:
    """Return the status for a SendStatus: OK if the append is as durable as configured."""
    code = _STORED_CODES[stored]
    return status(code, "" if code == "OK" else "the append succeeded, but may not be durable yet.")


def check_stored(stored: SendStatus) -> None:
    """Raise RefusedError unless an append is as durable as configured."""
    answer = stored_status(stored)
    if stored is not SendStatus.SEND_OK:
        raise RefusedError(_STORED_CODES[stored], answer.message)


def refusal_of(error: Exception) -> RefusedError:
    """Return the code and the text that are sent to the client for an error."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, PyrocketError):
        text = f"{error.message} {error.remedy}".strip()
        by_code = _BY_ERROR_CODE.get(error.code)
        if error.failed_send is FailedSend.STORED:
            by_code = "MASTER_PERSISTENCE_TIMEOUT"
    else:
        text, by_code = f"the broker failed unexpectedly: {type(error).__name__}.", None
        if isinstance(error, DecodeError):
            text = "the request is malformed."
    by_kind = next((code for kind, code in _BY_ERROR if isinstance(error, kind)), _FAILED)
    if isinstance(error, PyrocketError) and (by_code or by_kind) == _FAILED:
        text = str(error)  # Contains the error's code, such as DISK_FULL.
    return RefusedError(by_code or by_kind, text)
