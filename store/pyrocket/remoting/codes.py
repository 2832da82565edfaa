"""The codes of requests and answers, and the errors that answers become.

Source: `RequestCode`, `ResponseCode`, `RemotingSysResponseCode`.
"""

from enum import IntEnum

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
from pyrocket.remoting.frames import Frame
from pyrocket.values.message import SendStatus


class RequestCode(IntEnum):
    """What is requested of a name server or a broker."""

    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    VIEW_MESSAGE_BY_ID = 33
    GET_CONSUMER_LIST_BY_GROUP = 38
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    GET_CONSUME_STATS = 208
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320


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


SEND_STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""The answers to a send whose messages are stored."""

_LATER = "Repeat the call later."
_PROTOCOL = (
    "Use the address of a name server, usually port 9876, which names the brokers, usually at port"
    " 10911: neither a proxy nor a server of pyrocket."
)
_LIMITS = "See the limits of the broker: maxMessageSize, and 32,767 bytes of properties."
_RIGHTS = (
    "Ask for the right in the ACL of the cluster, and check `accessKey` and `secretKey`. Reading"
    " needs SUB (in RocketMQ 5 also GET) for the topic and SUB for the group; writing needs PUB."
)
_TOPIC = "Create it: `mqadmin updateTopic -n NAMESRV -c CLUSTER -t TOPIC`."
_GROUP = "Create it: `mqadmin updateSubGroup -n NAMESRV -c CLUSTER -g GROUP`."
_QUEUES = "Check the queues: `mqadmin topicStatus -n NAMESRV -t TOPIC`."
_ERRORS: dict[int, tuple[type[PyrocketError], str, str]] = {
    ResponseCode.SYSTEM_BUSY: (BrokerBusyError, "TOO_MANY_REQUESTS", _LATER),
    ResponseCode.SERVICE_NOT_AVAILABLE: (BrokerBusyError, "TOO_MANY_REQUESTS", _LATER),
    ResponseCode.FLOW_CONTROL: (BrokerBusyError, "TOO_MANY_REQUESTS", _LATER),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (UnsupportedError, "PROTOCOL_UNKNOWN", _PROTOCOL),
    ResponseCode.MESSAGE_ILLEGAL: (MessageError, "MESSAGE_ILLEGAL", _LIMITS),
    ResponseCode.NO_PERMISSION: (StorePermissionError, "PERMISSION_DENIED", _RIGHTS),
    ResponseCode.TOPIC_NOT_EXIST: (TopicNotFoundError, "TOPIC_NOT_FOUND", _TOPIC),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (GroupNotFoundError, "GROUP_NOT_FOUND", _GROUP),
    ResponseCode.INVALID_PARAMETER: (InvalidInputError, "BROKER_REFUSED", _QUEUES),
}
"""The error, its code and its remedy, by the code of an answer."""

_ACL_FAILED = "AclException"
"""What RocketMQ 4 says, with SYSTEM_ERROR, if it refuses a user or a signature."""

_BUSY = "broker busy"
"""What RocketMQ 4 says, with SYSTEM_ERROR, while its page cache is slow."""

_LONGEST_REMARK = 300
_NAMES = {int(member): name for name, member in ResponseCode.__members__.items()}


def error_of(answer: Frame, asked: str, place: str) -> PyrocketError:
    """Return the error for an answer that is no success.

    asked: What was requested, with the names of topic and group.
    place: The server, with its name and its address.
    """
    code = answer.code
    remark = answer.remark.strip().rstrip(".")[:_LONGEST_REMARK] or "no remark"
    message = f"{place} refused {asked} with code {code} ({_NAMES.get(code, 'unknown')}): {remark}."
    if code == ResponseCode.GO_AWAY:
        remedy = "It is shutting down; the next attempt asks for its address again."
        return TransportError(message, remedy=remedy, repeat_is_safe=True)
    if code == ResponseCode.SYSTEM_ERROR and _ACL_FAILED in answer.remark:
        return StorePermissionError(message, remedy=_RIGHTS)
    if code == ResponseCode.SYSTEM_ERROR and _BUSY in answer.remark:
        code = ResponseCode.SYSTEM_BUSY
    log = "See the log of the broker: ~/logs/rocketmqlogs."
    kind, own_code, remedy = _ERRORS.get(code, (StoreUnavailableError, "BROKER_FAILED", log))
    return kind(message, remedy=remedy, code=own_code)


def unreadable(asked: str, place: str) -> UnsupportedError:
    """Return the error for an answer that lacks something, or whose body cannot be read."""
    return UnsupportedError(
        f"{place} answered {asked} with something that cannot be read.",
        remedy="Check the version of RocketMQ: 4.9 and 5.x are supported.",
        code="PROTOCOL_BROKEN",
    )
