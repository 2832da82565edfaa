"""Calls: requests and how their answers are read, the codes of both, and the errors of servers.

A call is a value, so that calls of any kind can be made at once: see `ConnectionPool.ask`. Source:
`ResponseCode`, `RemotingSysResponseCode`.
"""

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from pyrocket.errors import (
    BrokerBusyError,
    GroupNotFoundError,
    InvalidInputError,
    MessageError,
    PyrocketError,
    StorePermissionError,
    StoreUnavailableError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.formats.fastjson import PARSE_ERRORS, loads
from pyrocket.remoting.frames import Frame
from pyrocket.values.message import SendStatus

_Value = TypeVar("_Value")


class ResponseCode(IntEnum):
    """The results that this client knows; a server may answer with others."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    FLOW_CONTROL = 215
    GO_AWAY = 1500


SEND_CODES = 310, 320
"""What is requested to store a message, or a batch: `SEND_MESSAGE_V2`, `SEND_BATCH_MESSAGE`."""

SEND_STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""The answers to a send whose messages are stored."""

TOPIC_REMEDY = "Create it: `mqadmin updateTopic -n NAMESRV -c CLUSTER -t TOPIC`."

_PROTOCOL = (
    "Use the address of a name server, usually port 9876, which names the brokers, usually at port"
    " 10911: neither a proxy nor a server of pyrocket."
)
_RIGHTS = (
    "Ask for the right in the ACL of the cluster, and check `accessKey` and `secretKey`. Reading"
    " needs SUB (in RocketMQ 5 also GET) for the topic and SUB for the group; writing needs PUB."
)
_GROUP = "Create it: `mqadmin updateSubGroup -n NAMESRV -c CLUSTER -g GROUP`."
_QUEUES = "Check the queues: `mqadmin topicStatus -n NAMESRV -t TOPIC`."
_BUSY = BrokerBusyError, "TOO_MANY_REQUESTS", "Repeat the call later."
_REFUSED = StorePermissionError, "PERMISSION_DENIED", _RIGHTS
_LIMITS = "See the limits of the broker: maxMessageSize, and 32,767 bytes of properties."
_FAILED = StoreUnavailableError, "BROKER_FAILED", "See the log of the broker: ~/logs/rocketmqlogs."
_ILLEGAL = MessageError, "MESSAGE_ILLEGAL", _LIMITS
_ERRORS: dict[int, tuple[type[PyrocketError], str, str]] = {
    ResponseCode.SYSTEM_BUSY: _BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE: _BUSY,
    ResponseCode.FLOW_CONTROL: _BUSY,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (UnsupportedError, "PROTOCOL_UNKNOWN", _PROTOCOL),
    ResponseCode.MESSAGE_ILLEGAL: _ILLEGAL,
    ResponseCode.NO_PERMISSION: _REFUSED,
    ResponseCode.TOPIC_NOT_EXIST: (TopicNotFoundError, "TOPIC_NOT_FOUND", TOPIC_REMEDY),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (GroupNotFoundError, "GROUP_NOT_FOUND", _GROUP),
    ResponseCode.INVALID_PARAMETER: (InvalidInputError, "BROKER_REFUSED", _QUEUES),
}
"""The error, its code and its remedy, by the code of an answer."""

_REMARKS = {"AclException": _REFUSED, "broker busy": _BUSY, "size exceeded": _ILLEGAL}
"""What brokers say with SYSTEM_ERROR: RocketMQ 4 if it refuses a user or while its disk is slow,
and all if a batch exceeds maxMessageSize.
"""

_LONGEST_REMARK = 300
_NAMES = {int(member): name for name, member in ResponseCode.__members__.items()}


def error_of(answer: Frame, asked: str, place: str) -> PyrocketError:
    """Return the error for an answer of `place` that is no success."""
    code = answer.code
    remark = answer.remark.strip().rstrip(".")[:_LONGEST_REMARK] or "no remark"
    message = f"{place} refused {asked} with code {code} ({_NAMES.get(code, 'unknown')}): {remark}."
    if code == ResponseCode.GO_AWAY:
        remedy = "It is shutting down; the next attempt asks for its address again."
        return TransportError(message, remedy=remedy, repeat_is_safe=True)
    known = _ERRORS.get(code, _FAILED)
    if code == ResponseCode.SYSTEM_ERROR:
        known = next((row for text, row in _REMARKS.items() if text in answer.remark), known)
    kind, own_code, remedy = known
    return kind(message, remedy=remedy, code=own_code)


def succeeded(answer: Frame) -> bool:
    """Whether an answer is a success."""
    return answer.code == ResponseCode.SUCCESS


@dataclass(frozen=True)
class CallKind(Generic[_Value]):
    """A kind of call, which is called with the values of its fields.

    Attributes:
        code: The code of the requests.
        asked: What is requested, for errors; formatted with the fields.
        read: Returns the value of an accepted answer, or raises one of the PARSE_ERRORS.
        fields: The names of the fields, in the order of the arguments, with `=` and the default of
            those that have one.
        also: The codes besides SUCCESS that are no errors.
        remarks: What a server says in other answers that are no errors.

    Example:
        highest_offset = CallKind(30, "an offset of {topic!r}", offset_of, "topic queueId")
        call = highest_offset("orders", 0)
    """

    code: int
    asked: str
    read: Callable[[Frame], _Value]
    fields: str = ""
    also: Container[int] = ()
    remarks: Collection[str] = ()

    def __call__(self, *values: object, body: bytes | memoryview = b"") -> "ServerCall[_Value]":
        """Return a call with these values, which are sent as text."""
        named = dict(part.partition("=")[::2] for part in self.fields.split())
        named |= zip([*named], map(str, values), strict=False)
        return ServerCall(self, Frame(self.code, named, body))


@dataclass(frozen=True)
class ServerCall(Generic[_Value]):
    """A request to a server, without signature, and how its answer is read."""

    kind: CallKind[_Value]
    request: Frame

    @property
    def asked(self) -> str:
        """What is requested, with the names of topic and group, for errors."""
        return self.kind.asked.format(**self.request.fields)

    def accepts(self, answer: Frame) -> bool:
        """Whether an answer is no error."""
        is_known = succeeded(answer) or answer.code in self.kind.also
        return is_known or any(text in answer.remark for text in self.kind.remarks)

    def value(self, answer: Frame, place: str) -> _Value:
        """Return the value of an answer from the server `place`.

        Raises the error that the answer reports; UnsupportedError (PROTOCOL_BROKEN).
        """
        if not self.accepts(answer):
            raise error_of(answer, self.asked, place)
        try:
            return self.kind.read(answer)
        except PARSE_ERRORS as error:
            raise UnsupportedError(
                f"{place} answered {self.asked} with something that cannot be read.",
                remedy="Check the version of RocketMQ: 4.9 and 5.x are supported.",
                code="PROTOCOL_BROKEN",
            ) from error


Ask = Callable[[Sequence[ServerCall[Any]]], list[Any]]
"""Makes calls at a server in one flight, and returns their values in the same order."""


def table_of(answer: Frame) -> dict[str, Any]:
    """Return the object in the body of an answer; an empty body is an empty object."""
    table = loads(str(answer.body, "utf-8") or "{}")
    if not isinstance(table, dict):
        raise TypeError("not an object")
    return table
