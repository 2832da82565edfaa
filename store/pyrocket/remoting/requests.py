"""The calls to brokers: offsets, groups, messages, and what creates topics and groups.

Reading needs no more than the rights of a consumer, and changes nothing but committed offsets: it
never sends a heartbeat, which makes the caller a member of its group. Only ask for queues that the
route of a topic names: RocketMQ 4 creates others.

Source: `RequestCode`, `AdminBrokerProcessor`, `ConsumerManageProcessor`, `PullMessageProcessor`,
`QueryMessageProcessor`, `SendMessageProcessor`, `SendMessageRequestHeaderV2`.
"""

import json
from collections.abc import Collection
from typing import NamedTuple

from pyrocket.formats.message_keys import parse_offset_message_id
from pyrocket.formats.record import find_record
from pyrocket.remoting.calls import (
    SEND_CODES,
    SEND_STATUS,
    CallKind,
    ResponseCode,
    ServerCall,
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


class SendAnswer(NamedTuple):
    """What a broker answers to a send: the place of the message, of a batch that of the first.

    offset_id: The offset message id, which has the log offset.
    """

    status: SendStatus
    queue_offset: int
    log_offset: int
    offset_id: str


_PULL_FIELDS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


def _topic_offsets(answer: Frame) -> dict[int, TopicOffset] | None:
    if not succeeded(answer):
        return None
    names = ("minOffset", "maxOffset", "lastUpdateTimestamp")
    offsets = {
        int(json.loads(queue)["queueId"]): TopicOffset(*(int(item[name]) for name in names))
        for queue, item in (table_of(answer).get("offsetTable") or {}).items()
    }
    return dict(sorted(offsets.items()))


def topic_offsets(
    topic: str, *, also: Collection[ResponseCode] = ()
) -> ServerCall[dict[int, TopicOffset] | None]:
    """Ask a broker for the ranges of its queues of a topic, by queue id.

    also: Refusals for which the value is None; TOPIC_NOT_EXIST if the broker may lack the topic.

    RocketMQ 4.9 answers only for write queues. For queues that can only be read, ask
    `lowest_offset` and `highest_offset`.
    """
    asked = "the offsets of the topic {topic!r}"
    return CallKind(202, asked, _topic_offsets, "topic", also=also)(topic)


def _offset_of(answer: Frame) -> int:
    return int(answer.fields["offset"])


_AN_OFFSET = "an offset of the topic {topic!r}"

lowest_offset = CallKind(31, _AN_OFFSET, _offset_of, "topic queueId")
"""The minimum offset of a queue; 0 for a topic that the broker does not have."""

highest_offset = CallKind(30, _AN_OFFSET, _offset_of, "topic queueId")
"""The maximum offset of such a queue: that of the next message."""

offset_near = CallKind(29, _AN_OFFSET, _offset_of, "topic queueId timestamp")
"""The offset at a time in epoch milliseconds.

This is a guess: RocketMQ 4.9 can answer a later offset than that of the first message stored at or
after the time, and the last message for a time in the future.
"""

committed = CallKind(
    14,
    "the offset of the group {consumerGroup!r} in the topic {topic!r}",
    lambda answer: _offset_of(answer) if succeeded(answer) else None,
    "consumerGroup topic queueId setZeroIfNotFound=false",
    also=[ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST],
)
"""The committed offset of a group; None if it has none.

RocketMQ 4 answers 0 for a group without offset in a queue that still begins at 0.
"""


def _nothing(answer: Frame) -> None:
    """Read an answer that says nothing but that the call has succeeded."""


commit = CallKind(
    15,
    "to commit an offset of the group {consumerGroup!r} in the topic {topic!r}",
    _nothing,
    "consumerGroup topic queueId commitOffset",
)
"""Commits the offset of a group in a queue, also one below the committed offset.

Make the first commit of a group in a topic alone: of several at once, RocketMQ 4.9 can lose all but
the last one (`ConsumerOffsetManager.commitOffset`).
"""

group_settings = CallKind(201, "the consumer groups", table_of)
"""The settings of the groups of a broker, as they are in `subscriptionGroup.json`."""

group_topics = CallKind(
    208,
    "the progress of the group {consumerGroup!r}",
    lambda answer: sorted(
        {str(json.loads(queue)["topic"]) for queue in table_of(answer).get("offsetTable") or ()}
    ),
    "consumerGroup",
)
"""The topics in which a group has offsets."""

members = CallKind(
    38,
    "the members of the group {consumerGroup!r}",
    lambda answer: sorted(table_of(answer)["consumerIdList"]) if succeeded(answer) else [],
    "consumerGroup",
    remarks=["no consumer for this group"],
)
"""The ids of the live members of a group."""


def write_group(group: str) -> ServerCall[None]:
    """Create a consumer group at a broker, or replace its settings by the default ones."""
    kind = CallKind(200, "to write the group {name!r}", _nothing, "name")
    return kind(group, body=json.dumps({"groupName": group}).encode())


_write_topic = CallKind(
    17,
    "to write the topic {topic!r}",
    _nothing,
    "topic perm readQueueNums writeQueueNums order defaultTopic=TBW102 topicFilterType=SINGLE_TAG",
)


def write_topic(topic: TopicConfig) -> ServerCall[None]:
    """Create a topic at a broker, or replace its settings. Needs the right to administer."""
    order = "true" if topic.ordered else "false"
    return _write_topic(topic.name, topic.perm, topic.read_queues, topic.write_queues, order)


def _pulled(answer: Frame) -> PullAnswer:
    next_offset, minimum, maximum, suggested = (int(answer.fields[name]) for name in _PULL_FIELDS)
    records = memoryview(answer.body)
    return PullAnswer(answer.code, next_offset, minimum, maximum, suggested, records)


pull = CallKind(
    11,
    "messages of the topic {topic!r} for the group {consumerGroup!r}",
    _pulled,
    f"topic queueId queueOffset maxMsgNums consumerGroup={READER_GROUP} subscription=* sysFlag=4"
    " expressionType=TAG subVersion=0 commitOffset=0 suspendTimeoutMillis=0",
    also=[
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ],
)
"""At most `maxMsgNums` messages of a queue from an offset on, without waiting.

The group must exist, and needs the right to read the topic. The subscription `A || B` selects by
the hashes of tags, so that other tags may be among the messages.

The answer may have fewer messages: a broker allows about 32, and 8 if it reads its disk. The flag 4
says that the request has the subscription.
"""


messages_of_key = CallKind(
    12,
    "the messages of a key of the topic {topic!r}",
    lambda answer: bytes(answer.body),
    f"topic key beginTimestamp=0 endTimestamp={2**63 - 1} maxNum={MOST_FOUND}",
    also=[ResponseCode.QUERY_NOT_FOUND],
)
"""The newest MOST_FOUND messages with a key or a unique id, as records.

They were stored from the first to the second time. The broker compares hashes, so that other
messages may be among them. RocketMQ 5 may not find messages of the last seconds.
"""


def message_at(log_offset: int, topic: str) -> ServerCall[bytes | None]:
    """Ask a broker for the record at an offset of its log; None if no record begins there."""

    def read(answer: Frame) -> bytes | None:
        # Elsewhere, a broker takes the bytes there for a size, and answers with that many bytes.
        data = bytes(answer.body)
        return data if find_record(data, log_offset) == 0 else None

    asked = "the message at log offset {offset} of the topic {topic!r}"
    return CallKind(33, asked, read, "offset topic", remarks=_NO_RECORD)(log_offset, topic)


def _sent(answer: Frame) -> SendAnswer:
    offset_id, _, _ = answer.fields["msgId"].partition(",")
    if (place := parse_offset_message_id(offset_id)) is None:
        raise ValueError("no offset message id")
    queue_offset = int(answer.fields["queueOffset"])
    return SendAnswer(SEND_STATUS[answer.code], queue_offset, place[2], offset_id)


_send, _send_batch = (
    CallKind(
        code,
        "messages for the topic {b!r} queue {e}",
        _sent,
        "a b e f g h i m c= d=0 j=0 k=false",
        also=SEND_STATUS,
    )
    for code in SEND_CODES
)


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
) -> ServerCall[SendAnswer]:
    """Store a message, or all messages of a batch, in a queue. Repeated, it stores them again.

    They are stored with any status. A topic that is missing is not created.

    body: As it is stored, compressed by `sys_flag`; of a batch by `MessageDecoder.encodeMessages`.
    group: The name of the producers.
    born_ms: When the message was sent first, in epoch milliseconds.
    properties: NAME, 0x01, VALUE, 0x02 for each property; of a batch, those of all messages.
    """
    values = group, topic, queue_id, sys_flag, born_ms, flag, properties
    if is_batch:
        return _send_batch(*values, "true", body=body)
    return _send(*values, "false", body=body)


version_of = CallKind(105, "its version", lambda answer: answer.version, "topic", also=range(2**31))
"""The version of a broker in `MQVersion`, which every answer has, also a refusal."""
