"""The calls that read from name servers and brokers, and those that commit offsets.

A call is a value: its request, and how the answer is read. So calls of any kind can be sent at
once, see `ConnectionPool.exchange`. Only calls are made that need no more than the rights of a
consumer, and that change nothing but committed offsets: never a heartbeat, which makes the caller a
member of its group, and never the offsets of a queue that may not exist, which RocketMQ 4 would
create. Source: `DefaultRequestProcessor`, `AdminBrokerProcessor`, `PullMessageProcessor`,
`QueryMessageProcessor`, `ConsumerManageProcessor`.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from pyrocket.errors import UnsupportedError
from pyrocket.formats.fastjson import PARSE_ERRORS, loads
from pyrocket.remoting.codes import RequestCode, ResponseCode, error_of, unreadable
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.frames import Frame
from pyrocket.values.topics import TopicConfig

READER_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has and lets pull without a heartbeat: `MixAll.TOOLS_CONSUMER_GROUP`,
`isSysConsumerGroupPullMessage`."""

MOST_FOUND = 64
"""A broker answers a look-up by key with at most this many messages (`maxMsgsNumBatch`)."""

_EVER = 2**63 - 1
_INLINE_SUBSCRIPTION = 4
_NO_RECORD = ("can not find", "IllegalArgumentException")
"""What a broker says where no record begins: bytes of another record can be a negative size."""

_Value = TypeVar("_Value")


def _succeeded(answer: Frame) -> bool:
    return answer.code == ResponseCode.SUCCESS


def _has_code(*codes: int) -> Callable[[Frame], bool]:
    return lambda answer: answer.code in codes


@dataclass(frozen=True)
class ServerCall(Generic[_Value]):
    """A request to a server, and how its answer is read.

    Attributes:
        asked: What is requested, with its names, for errors.
        request: The request, without signature.
        read: Returns the value of an answer that is no error. May raise one of the PARSE_ERRORS if
            the answer lacks something.
        accepts: Whether an answer is no error.
    """

    asked: str
    request: Frame
    read: Callable[[Frame], _Value]
    accepts: Callable[[Frame], bool] = _succeeded

    def value(self, answer: Frame, place: str) -> _Value:
        """Return the value of an answer from the server `place`.

        Raises the error that the answer reports; UnsupportedError (PROTOCOL_BROKEN).
        """
        if not self.accepts(answer):
            raise error_of(answer, self.asked, place)
        try:
            return self.read(answer)
        except PARSE_ERRORS as error:
            raise unreadable(self.asked, place) from error


def ask(
    server: ConnectionPool, calls: Sequence[ServerCall[_Value]], seconds: float
) -> list[_Value]:
    """Make calls at once, and return their values in the same order.

    Raises the first error that the server reports; TransportError, UnsupportedError.
    """
    answers = server.exchange([call.request for call in calls], seconds)
    return [call.value(answer, server.place) for call, answer in zip(calls, answers, strict=True)]


def _nothing(answer: Frame) -> None:
    """Read an answer that only says that the call succeeded."""


def _table(answer: Frame) -> dict[str, Any]:
    """Return the object in the body of an answer; an empty body is an empty object."""
    table = loads(str(answer.body, "utf-8") or "{}")
    if not isinstance(table, dict):
        raise TypeError("not an object")
    return table


# Name servers


@dataclass(frozen=True)
class BrokerAddresses:
    """The live brokers with one name: `addresses` by their id, of which 0 is the master."""

    cluster: str
    name: str
    addresses: Mapping[int, str]


@dataclass(frozen=True)
class TopicRouteData:
    """The brokers and the queues of a topic.

    Attributes:
        topic: The name of the topic.
        queues: The settings of the topic by the name of the broker.
        brokers: The live brokers by name.
        order: `orderTopicConf`, which names the queues of an ordered topic; usually empty.
    """

    topic: str
    queues: Mapping[str, TopicConfig]
    brokers: Mapping[str, BrokerAddresses]
    order: str = ""


def route(topic: str) -> ServerCall[TopicRouteData | None]:
    """Ask a name server for the route of a topic; None if it knows none.

    Raises UnsupportedError (UNSUPPORTED_TOPIC) for a static topic, whose queues move.
    """
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return ServerCall(
        f"the route of the topic {topic!r}",
        Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields),
        partial(_route, topic),
        _has_code(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
    )


def _route(topic: str, answer: Frame) -> TopicRouteData | None:
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    table = _table(answer)
    if table.get("topicQueueMappingByBroker"):
        raise UnsupportedError(
            f"{topic!r} is a static topic, whose queues move between brokers.",
            remedy="Copy its messages to a topic that is not static, and read that.",
            code="UNSUPPORTED_TOPIC",
        )
    queues = {
        str(data["brokerName"]): TopicConfig(
            topic, int(data["readQueueNums"]), int(data["writeQueueNums"]), int(data["perm"])
        )
        for data in table.get("queueDatas") or ()
    }
    brokers = _brokers(table.get("brokerDatas") or ())
    return TopicRouteData(topic, queues, brokers, str(table.get("orderTopicConf") or ""))


def _brokers(tables: Collection[Mapping[str, Any]]) -> dict[str, BrokerAddresses]:
    brokers = (
        BrokerAddresses(
            str(table.get("cluster", "")),
            str(table["brokerName"]),
            {int(key): str(address) for key, address in sorted(table["brokerAddrs"].items())},
        )
        for table in tables
    )
    return {broker.name: broker for broker in brokers}


def live_brokers() -> ServerCall[dict[str, BrokerAddresses]]:
    """Ask a name server for all live brokers by name."""
    return ServerCall(
        "the brokers",
        Frame(RequestCode.GET_BROKER_CLUSTER_INFO),
        lambda answer: _brokers((_table(answer).get("brokerAddrTable") or {}).values()),
    )


def topic_names() -> ServerCall[list[str]]:
    """Ask a name server for the names of all topics, sorted, including those of the system."""
    return ServerCall(
        "the topics",
        Frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        lambda answer: sorted(map(str, _table(answer).get("topicList") or ())),
    )


# Offsets of queues


@dataclass(frozen=True)
class TopicOffset:
    """The range of a queue: the offsets in [minimum, maximum).

    Attributes:
        last_update_ms: When the last message was stored, in epoch milliseconds; 0 if there is none.
    """

    minimum: int
    maximum: int
    last_update_ms: int


def topic_offsets(topic: str) -> ServerCall[dict[int, TopicOffset]]:
    """Ask a broker for the ranges of its queues of a topic, by queue id.

    RocketMQ 4.9 answers only for write queues. For queues that can only be read, ask
    `lowest_offset` and `highest_offset`.

    Raises TopicNotFoundError: the broker does not have the topic.
    """
    return ServerCall(
        f"the offsets of the topic {topic!r}",
        Frame(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}),
        _topic_offsets,
    )


def _topic_offsets(answer: Frame) -> dict[int, TopicOffset]:
    table = _table(answer).get("offsetTable") or {}
    offsets = {
        int(json.loads(queue)["queueId"]): TopicOffset(
            int(item["minOffset"]), int(item["maxOffset"]), int(item["lastUpdateTimestamp"])
        )
        for queue, item in table.items()
    }
    return dict(sorted(offsets.items()))


def lowest_offset(topic: str, queue_id: int) -> ServerCall[int]:
    """Ask a broker for the minimum offset of a queue that the route of the topic names.

    A broker answers 0 for a topic that it does not have.
    """
    return _bound(RequestCode.GET_MIN_OFFSET, topic, queue_id)


def highest_offset(topic: str, queue_id: int) -> ServerCall[int]:
    """Ask a broker for the maximum offset of such a queue: that of the next message."""
    return _bound(RequestCode.GET_MAX_OFFSET, topic, queue_id)


def _bound(code: RequestCode, topic: str, queue_id: int) -> ServerCall[int]:
    return ServerCall(
        f"an offset of the topic {topic!r}",
        Frame(code, {"topic": topic, "queueId": str(queue_id)}),
        lambda answer: int(answer.fields["offset"]),
    )


def offset_near(topic: str, queue_id: int, time_ms: int) -> ServerCall[int]:
    """Ask a broker for the offset at a time in epoch milliseconds.

    This is a guess: RocketMQ 4.9 can answer a later offset than that of the first message stored at
    or after the time, and the last message for a time in the future.
    """
    fields = {"topic": topic, "queueId": str(queue_id), "timestamp": str(time_ms)}
    return ServerCall(
        f"an offset by time of the topic {topic!r}",
        Frame(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields),
        lambda answer: int(answer.fields["offset"]),
    )


# Messages


@dataclass(frozen=True)
class PullAnswer:
    """What a broker answers to a pull.

    Attributes:
        code: SUCCESS with records; PULL_NOT_FOUND at the end of the queue; PULL_RETRY_IMMEDIATELY
            if no message of the examined ones was selected, or a slave is behind;
            PULL_OFFSET_MOVED outside of [minimum, maximum].
        next_offset: Where the next pull begins: all messages before it were examined.
        minimum, maximum: The range of the queue.
        suggested_id: The id of the broker that should be asked next: 0 for the master.
        records: The records one after the other, as they are in the log.
    """

    code: int
    next_offset: int
    minimum: int
    maximum: int
    suggested_id: int
    records: memoryview


_was_pulled = _has_code(
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def pull(
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    *,
    group: str = READER_GROUP,
    tags: str = "*",
) -> ServerCall[PullAnswer]:
    """Ask a broker for at most `count` messages of a queue from `offset` on, without waiting.

    group: A group that exists; it needs the right to read the topic.
    tags: `A || B` selects by the hashes of tags, so that other tags may be among the messages.

    The answer may have fewer messages: a broker allows about 32, and 8 if it reads its disk.
    """
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(_INLINE_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": tags,
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return ServerCall(
        f"messages of the topic {topic!r} for the group {group!r}",
        Frame(RequestCode.PULL_MESSAGE, fields),
        _pulled,
        _was_pulled,
    )


def _pulled(answer: Frame) -> PullAnswer:
    fields = answer.fields
    return PullAnswer(
        answer.code,
        int(fields["nextBeginOffset"]),
        int(fields["minOffset"]),
        int(fields["maxOffset"]),
        int(fields["suggestWhichBrokerId"]),
        memoryview(answer.body),
    )


def messages_of_key(
    topic: str, key: str, *, begin_ms: int = 0, end_ms: int = _EVER, count: int = MOST_FOUND
) -> ServerCall[bytes]:
    """Ask a broker for the newest messages with a key or a unique id, as records.

    They were stored in [begin_ms, end_ms]. The broker compares hashes, so that other messages may
    be among them. RocketMQ 5 may not find messages of the last seconds.
    """
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": str(count),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(end_ms),
        "_UNIQUE_KEY_QUERY": "false",
    }
    return ServerCall(
        f"the messages of a key of the topic {topic!r}",
        Frame(RequestCode.QUERY_MESSAGE, fields),
        lambda answer: bytes(answer.body),
        _has_code(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )


def message_at(log_offset: int, topic: str) -> ServerCall[bytes | None]:
    """Ask a broker for the record at an offset of its log; None if no record begins there."""
    fields = {"offset": str(log_offset), "topic": topic}
    return ServerCall(
        f"the message at log offset {log_offset} of the topic {topic!r}",
        Frame(RequestCode.VIEW_MESSAGE_BY_ID, fields),
        lambda answer: bytes(answer.body) or None if _succeeded(answer) else None,
        lambda answer: _succeeded(answer) or _has_no_record(answer),
    )


def _has_no_record(answer: Frame) -> bool:
    said = any(text in answer.remark for text in _NO_RECORD)
    return answer.code == ResponseCode.SYSTEM_ERROR and said


# Offsets of groups


def committed(group: str, topic: str, queue_id: int) -> ServerCall[int | None]:
    """Ask a broker for the committed offset of a group; None if it has none.

    RocketMQ 4 answers 0 for a group without offset in a queue that still begins at 0.
    """
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "setZeroIfNotFound": "false",
    }
    return ServerCall(
        f"the offset of the group {group!r} in the topic {topic!r}",
        Frame(RequestCode.QUERY_CONSUMER_OFFSET, fields),
        lambda answer: int(answer.fields["offset"]) if answer.code == 0 else None,
        _has_code(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )


def commit(group: str, topic: str, queue_id: int, offset: int) -> ServerCall[None]:
    """Commit the offset of a group in a queue, also one below the committed offset."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "commitOffset": str(offset),
    }
    return ServerCall(
        f"to commit an offset of the group {group!r} in the topic {topic!r}",
        Frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields),
        _nothing,
    )
