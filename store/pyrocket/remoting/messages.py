"""The calls that read and store messages, and those that create topics and groups for them.

Source: `PullMessageProcessor`, `QueryMessageProcessor`, `SendMessageProcessor`,
`SendMessageRequestHeaderV2`, `AdminBrokerProcessor`.
"""

import json
from typing import NamedTuple

from pyrocket.remoting.calls import ServerCall, has_code, queue_request, succeeded
from pyrocket.remoting.codes import SEND_STATUS, RequestCode, ResponseCode
from pyrocket.remoting.frames import Frame
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import SendStatus

READER_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has and lets pull without a heartbeat: `MixAll.TOOLS_CONSUMER_GROUP`,
`isSysConsumerGroupPullMessage`."""

MOST_FOUND = 64
"""A broker answers a look-up by key with at most this many messages (`maxMsgsNumBatch`)."""

_EVER = 2**63 - 1
_INLINE_SUBSCRIPTION = 4
_NO_RECORD = ("can not find", "IllegalArgumentException")
"""What a broker says where no record begins: bytes of another record can be a negative size."""

_NO_TOPIC = ""
"""The topic whose settings a broker takes for a missing topic; without one, it creates none."""


class PullAnswer(NamedTuple):
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


_was_pulled = has_code(
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


_PULL_FIELDS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


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
    request = queue_request(
        RequestCode.PULL_MESSAGE,
        topic,
        queue_id,
        **pull_place(offset, count),
        consumerGroup=group,
        sysFlag=_INLINE_SUBSCRIPTION,
        subscription=tags,
        expressionType="TAG",
        subVersion=0,
        commitOffset=0,
        suspendTimeoutMillis=0,
    )
    asked = f"messages of the topic {topic!r} for the group {group!r}"
    return ServerCall(asked, request, _pulled, _was_pulled)


def pull_place(offset: int, count: int) -> dict[str, str]:
    """Return the fields in which the pulls of a queue differ."""
    return {"queueOffset": str(offset), "maxMsgNums": str(count)}


def _pulled(answer: Frame) -> PullAnswer:
    next_offset, minimum, maximum, suggested = (int(answer.fields[name]) for name in _PULL_FIELDS)
    records = memoryview(answer.body)
    return PullAnswer(answer.code, next_offset, minimum, maximum, suggested, records)


def messages_of_key(
    topic: str, key: str, *, begin_ms: int = 0, end_ms: int = _EVER, count: int = MOST_FOUND
) -> ServerCall[bytes]:
    """Ask a broker for the newest messages with a key or a unique id, as records.

    They were stored in [begin_ms, end_ms]. The broker compares hashes, so that other messages may
    be among them. RocketMQ 5 may not find messages of the last seconds.
    """
    times = {"beginTimestamp": str(begin_ms), "endTimestamp": str(end_ms)}
    fields = {"topic": topic, "key": key, "maxNum": str(count), **times}
    return ServerCall(
        f"the messages of a key of the topic {topic!r}",
        Frame(RequestCode.QUERY_MESSAGE, fields | {"_UNIQUE_KEY_QUERY": "false"}),
        lambda answer: bytes(answer.body),
        has_code(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )


def message_at(log_offset: int, topic: str) -> ServerCall[bytes | None]:
    """Ask a broker for the record at an offset of its log; None if no record begins there."""
    return ServerCall(
        f"the message at log offset {log_offset} of the topic {topic!r}",
        Frame(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset), "topic": topic}),
        lambda answer: bytes(answer.body) or None if succeeded(answer) else None,
        lambda answer: succeeded(answer) or _has_no_record(answer),
    )


def _has_no_record(answer: Frame) -> bool:
    said = any(text in answer.remark for text in _NO_RECORD)
    return answer.code == ResponseCode.SYSTEM_ERROR and said


def send(
    topic: str,
    queue_id: int,
    body: bytes | memoryview,
    *,
    group: str,
    born_ms: int,
    properties: str = "",
    flag: int = 0,
    sys_flag: int = 0,
    is_batch: bool = False,
) -> ServerCall[SendStatus]:
    """Store a message, or all messages of a batch, in a queue. Repeated, it stores them again.

    They are stored with any status.

    body: As it is stored, which may be compressed; of a batch, what `MessageDecoder.encodeMessages`
        returns.
    group: The name of the producers.
    born_ms: When the message was sent first, in epoch milliseconds.
    properties: NAME, 0x01, VALUE, 0x02 for each property; of a batch, those of all messages.
    sys_flag: Whether and how `body` is compressed.
    """
    values = {"a": group, "b": topic, "c": _NO_TOPIC, "d": 0, "e": queue_id, "f": sys_flag}
    values |= {"g": born_ms, "h": flag, "i": properties, "j": 0, "k": "false"}
    values |= {"m": "true" if is_batch else "false"}
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    return ServerCall(
        f"messages for the topic {topic!r} queue {queue_id}",
        Frame(code, {name: str(value) for name, value in values.items()}, body),
        lambda answer: SEND_STATUS[answer.code],
        has_code(*SEND_STATUS),
    )


def version_of() -> ServerCall[int]:
    """Ask a broker for its version in `MQVersion`, which every answer has, also a refusal."""
    request = Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": ""})
    return ServerCall("its version", request, lambda answer: answer.version, lambda answer: True)


def write_topic(topic: TopicConfig) -> ServerCall[None]:
    """Create a topic at a broker, or replace its settings. Needs the right to administer."""
    fields = {
        "topic": topic.name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(topic.read_queues),
        "writeQueueNums": str(topic.write_queues),
        "perm": str(topic.perm),
        "topicFilterType": "SINGLE_TAG",
        "order": "true" if topic.ordered else "false",
    }
    request = Frame(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    return ServerCall(f"to write the topic {topic.name!r}", request, lambda answer: None)


def write_group(group: str) -> ServerCall[None]:
    """Create a consumer group at a broker, or replace its settings by the default ones."""
    body = json.dumps({"groupName": group}).encode()
    request = Frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    return ServerCall(f"to write the group {group!r}", request, lambda answer: None)
