"""The calls to brokers: offsets, groups, messages, and what creates topics and groups.

Reading needs no more than the rights of a consumer, and changes nothing but committed offsets: it
never sends a heartbeat, which makes the caller a member of its group. Only ask for queues that the
route of a topic names: RocketMQ 4 creates others.

Source: `AdminBrokerProcessor`, `ConsumerManageProcessor`, `PullMessageProcessor`,
`QueryMessageProcessor`, `SendMessageProcessor`, `SendMessageRequestHeaderV2`.
"""

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from pyrocket.formats.record import find_record
from pyrocket.remoting.calls import (
    SEND_STATUS,
    RequestCode,
    ResponseCode,
    ServerCall,
    nothing,
    server_call,
    succeeded,
    table_of,
)
from pyrocket.remoting.frames import Frame
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import SendStatus

READER_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has and lets pull without a heartbeat: `MixAll.TOOLS_CONSUMER_GROUP`,
`isSysConsumerGroupPullMessage`."""

MOST_FOUND = 64
"""A broker answers a look-up by key with at most this many messages (`maxMsgsNumBatch`)."""

_EVER = 2**63 - 1
_PULL = {"sysFlag": 4, "expressionType": "TAG", "subVersion": 0} | dict.fromkeys(
    ("commitOffset", "suspendTimeoutMillis"), 0
)
"""The fields of all pulls: the request has the subscription, nothing is committed or awaited."""

_NO_RECORD = ("can not find", "IllegalArgumentException")
"""What a broker says where no record begins: bytes of another record can be a negative size."""


class TopicOffset(NamedTuple):
    """The range of a queue, and when its last message was stored: in epoch ms, 0 without one."""

    minimum: int
    maximum: int
    last_update_ms: int


class PullAnswer(NamedTuple):
    """What a broker answers to a pull.

    Attributes:
        code: SUCCESS with records; PULL_NOT_FOUND at the end of the queue; PULL_RETRY_IMMEDIATELY
            if none of the examined messages was selected, or a slave is behind;
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


_PULL_FIELDS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")
_PULLED = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def topic_offsets(
    topic: str, *, also: Collection[ResponseCode] = ()
) -> ServerCall[dict[int, TopicOffset] | None]:
    """Ask a broker for the ranges of its queues of a topic, by queue id.

    also: Refusals for which the value is None; TOPIC_NOT_EXIST if the broker may lack the topic.

    RocketMQ 4.9 answers only for write queues. For queues that can only be read, ask
    `lowest_offset` and `highest_offset`.
    """
    asked, code = f"the offsets of the topic {topic!r}", RequestCode.GET_TOPIC_STATS_INFO
    return server_call(asked, code, _topic_offsets, {"topic": topic}, also=also)


def _topic_offsets(answer: Frame) -> dict[int, TopicOffset] | None:
    if not succeeded(answer):
        return None
    names = ("minOffset", "maxOffset", "lastUpdateTimestamp")
    offsets = {
        int(json.loads(queue)["queueId"]): TopicOffset(*(int(item[name]) for name in names))
        for queue, item in (table_of(answer).get("offsetTable") or {}).items()
    }
    return dict(sorted(offsets.items()))


def lowest_offset(topic: str, queue_id: int) -> ServerCall[int]:
    """Ask a broker for the minimum offset of a queue; 0 for a topic that it does not have."""
    return _offset(RequestCode.GET_MIN_OFFSET, topic, queue_id)


def highest_offset(topic: str, queue_id: int) -> ServerCall[int]:
    """Ask a broker for the maximum offset of such a queue: that of the next message."""
    return _offset(RequestCode.GET_MAX_OFFSET, topic, queue_id)


def offset_near(topic: str, queue_id: int, time_ms: int) -> ServerCall[int]:
    """Ask a broker for the offset at a time in epoch milliseconds.

    This is a guess: RocketMQ 4.9 can answer a later offset than that of the first message stored at
    or after the time, and the last message for a time in the future.
    """
    return _offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic, queue_id, timestamp=time_ms)


def _offset(code: RequestCode, topic: str, queue_id: int, **more: int) -> ServerCall[int]:
    fields = {"topic": topic, "queueId": queue_id, **more}
    return server_call(f"an offset of the topic {topic!r}", code, _offset_of, fields)


def _offset_of(answer: Frame) -> int:
    return int(answer.fields["offset"])


def committed(group: str, topic: str, queue_id: int) -> ServerCall[int | None]:
    """Ask a broker for the committed offset of a group; None if it has none.

    RocketMQ 4 answers 0 for a group without offset in a queue that still begins at 0.
    """
    fields = {"topic": topic, "queueId": queue_id, "consumerGroup": group}
    return server_call(
        f"the offset of the group {group!r} in the topic {topic!r}",
        RequestCode.QUERY_CONSUMER_OFFSET,
        lambda answer: _offset_of(answer) if succeeded(answer) else None,
        fields | {"setZeroIfNotFound": "false"},
        also=[ResponseCode.QUERY_NOT_FOUND],
    )


def commit(group: str, topic: str, queue_id: int, offset: int) -> ServerCall[None]:
    """Commit the offset of a group in a queue, also one below the committed offset.

    Make the first commit of a group in a topic alone: of several at once, RocketMQ 4.9 can lose all
    but the last one (`ConsumerOffsetManager.commitOffset`).
    """
    asked = f"to commit an offset of the group {group!r} in the topic {topic!r}"
    fields = {"topic": topic, "queueId": queue_id, "consumerGroup": group, "commitOffset": offset}
    return server_call(asked, RequestCode.UPDATE_CONSUMER_OFFSET, nothing, fields)


def group_settings() -> ServerCall[dict[str, Any]]:
    """Ask a broker for the settings of its groups, as they are in `subscriptionGroup.json`."""
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    return server_call("the consumer groups", code, table_of)


def group_topics(group: str) -> ServerCall[list[str]]:
    """Ask a broker for the topics in which a group has offsets."""
    return server_call(
        f"the progress of the group {group!r}",
        RequestCode.GET_CONSUME_STATS,
        lambda answer: sorted(
            {str(json.loads(queue)["topic"]) for queue in table_of(answer).get("offsetTable") or ()}
        ),
        {"consumerGroup": group},
    )


def members(group: str) -> ServerCall[list[str]]:
    """Ask a broker for the ids of the live members of a group."""
    return server_call(
        f"the members of the group {group!r}",
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        lambda answer: sorted(table_of(answer)["consumerIdList"]) if succeeded(answer) else [],
        {"consumerGroup": group},
        remarks=["no consumer for this group"],
    )


def write_group(group: str) -> ServerCall[None]:
    """Create a consumer group at a broker, or replace its settings by the default ones."""
    code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps({"groupName": group})
    return server_call(f"to write the group {group!r}", code, nothing, body=body.encode())


def write_topic(topic: TopicConfig) -> ServerCall[None]:
    """Create a topic at a broker, or replace its settings. Needs the right to administer."""
    fields = {"topic": topic.name, "defaultTopic": "TBW102", "perm": topic.perm}
    fields |= {"readQueueNums": topic.read_queues, "writeQueueNums": topic.write_queues}
    fields |= {"topicFilterType": "SINGLE_TAG", "order": "true" if topic.ordered else "false"}
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    return server_call(f"to write the topic {topic.name!r}", code, nothing, fields)


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
    fields = {"topic": topic, "queueId": queue_id, "consumerGroup": group, "subscription": tags}
    fields |= _PULL | pull_place(offset, count)
    asked = f"messages of the topic {topic!r} for the group {group!r}"
    return server_call(asked, RequestCode.PULL_MESSAGE, _pulled, fields, also=_PULLED)


def pull_place(offset: int, count: int) -> dict[str, str]:
    """Return the fields in which the pulls of a queue differ."""
    return {"queueOffset": str(offset), "maxMsgNums": str(count)}


def _pulled(answer: Frame) -> PullAnswer:
    fields = answer.fields
    next_offset, minimum, maximum, suggested = map(int, map(fields.__getitem__, _PULL_FIELDS))
    records = memoryview(answer.body)
    return PullAnswer(answer.code, next_offset, minimum, maximum, suggested, records)


def messages_of_key(
    topic: str, key: str, *, begin_ms: int = 0, end_ms: int = _EVER
) -> ServerCall[bytes]:
    """Ask a broker for the newest MOST_FOUND messages with a key or a unique id, as records.

    They were stored in [begin_ms, end_ms]. The broker compares hashes, so that other messages may
    be among them. RocketMQ 5 may not find messages of the last seconds.
    """
    return server_call(
        f"the messages of a key of the topic {topic!r}",
        RequestCode.QUERY_MESSAGE,
        lambda answer: bytes(answer.body),
        {"topic": topic, "key": key, "maxNum": MOST_FOUND, "_UNIQUE_KEY_QUERY": "false"}
        | {"beginTimestamp": begin_ms, "endTimestamp": end_ms},
        also=[ResponseCode.QUERY_NOT_FOUND],
    )


def message_at(log_offset: int, topic: str) -> ServerCall[bytes | None]:
    """Ask a broker for the record at an offset of its log; None if no record begins there."""
    return server_call(
        f"the message at log offset {log_offset} of the topic {topic!r}",
        RequestCode.VIEW_MESSAGE_BY_ID,
        lambda answer: _record_at(log_offset, bytes(answer.body)),
        {"offset": log_offset, "topic": topic},
        remarks=_NO_RECORD,
    )


def _record_at(log_offset: int, data: bytes) -> bytes | None:
    """Return the data if it is a record: elsewhere, a broker takes the bytes there for a size."""
    return data if find_record(data, log_offset) == 0 else None


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

    They are stored with any status. A topic that is missing is not created.

    body: As it is stored, compressed by `sys_flag`; of a batch by `MessageDecoder.encodeMessages`.
    group: The name of the producers.
    born_ms: When the message was sent first, in epoch milliseconds.
    properties: NAME, 0x01, VALUE, 0x02 for each property; of a batch, those of all messages.
    """
    values = {"a": group, "b": topic, "c": "", "d": 0, "e": queue_id, "f": sys_flag}
    values |= {"g": born_ms, "h": flag, "i": properties, "j": 0, "k": "false"}
    values |= {"m": "true" if is_batch else "false"}
    return server_call(
        f"messages for the topic {topic!r} queue {queue_id}",
        RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
        lambda answer: SEND_STATUS[answer.code],
        values,
        body=body,
        also=SEND_STATUS,
    )


def version_of() -> ServerCall[int]:
    """Ask a broker for its version in `MQVersion`, which every answer has, also a refusal."""
    request = Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": ""})
    return ServerCall("its version", request, lambda answer: answer.version, lambda answer: True)
