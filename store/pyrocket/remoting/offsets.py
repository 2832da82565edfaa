"""The calls about offsets: those of queues, and those of consumer groups; what groups there are.

Only ask for queues that the route of a topic names: RocketMQ 4 creates others. Source:
`AdminBrokerProcessor`, `ConsumerManageProcessor`.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyrocket.remoting.calls import ServerCall, has_code, queue_request, succeeded, table_of
from pyrocket.remoting.codes import RequestCode, ResponseCode
from pyrocket.remoting.frames import Frame

_NO_MEMBER = "no consumer for this group"


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
    request = Frame(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
    return ServerCall(f"the offsets of the topic {topic!r}", request, _topic_offsets)


def _topic_offsets(answer: Frame) -> dict[int, TopicOffset]:
    table = table_of(answer).get("offsetTable") or {}
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
    return _offset(topic, queue_request(RequestCode.GET_MIN_OFFSET, topic, queue_id))


def highest_offset(topic: str, queue_id: int) -> ServerCall[int]:
    """Ask a broker for the maximum offset of such a queue: that of the next message."""
    return _offset(topic, queue_request(RequestCode.GET_MAX_OFFSET, topic, queue_id))


def offset_near(topic: str, queue_id: int, time_ms: int) -> ServerCall[int]:
    """Ask a broker for the offset at a time in epoch milliseconds.

    This is a guess: RocketMQ 4.9 can answer a later offset than that of the first message stored at
    or after the time, and the last message for a time in the future.
    """
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return _offset(topic, queue_request(code, topic, queue_id, timestamp=time_ms))


def _offset(topic: str, request: Frame) -> ServerCall[int]:
    asked = f"an offset of the topic {topic!r}"
    return ServerCall(asked, request, lambda answer: int(answer.fields["offset"]))


def committed(group: str, topic: str, queue_id: int) -> ServerCall[int | None]:
    """Ask a broker for the committed offset of a group; None if it has none.

    RocketMQ 4 answers 0 for a group without offset in a queue that still begins at 0.
    """
    code, own = RequestCode.QUERY_CONSUMER_OFFSET, {"setZeroIfNotFound": "false"}
    return ServerCall(
        f"the offset of the group {group!r} in the topic {topic!r}",
        queue_request(code, topic, queue_id, consumerGroup=group, **own),
        lambda answer: int(answer.fields["offset"]) if succeeded(answer) else None,
        has_code(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )


def commit(group: str, topic: str, queue_id: int, offset: int) -> ServerCall[None]:
    """Commit the offset of a group in a queue, also one below the committed offset.

    Make the first commit of a group in a topic alone: of several at once, RocketMQ 4.9 can lose all
    but the last one (`ConsumerOffsetManager.commitOffset`).
    """
    code, own = RequestCode.UPDATE_CONSUMER_OFFSET, {"commitOffset": offset}
    return ServerCall(
        f"to commit an offset of the group {group!r} in the topic {topic!r}",
        queue_request(code, topic, queue_id, consumerGroup=group, **own),
        lambda answer: None,
    )


def group_settings() -> ServerCall[dict[str, Any]]:
    """Ask a broker for the settings of its groups, as they are in `subscriptionGroup.json`."""
    request = Frame(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return ServerCall("the consumer groups", request, table_of)


def group_topics(group: str) -> ServerCall[list[str]]:
    """Ask a broker for the topics in which a group has offsets."""
    return ServerCall(
        f"the progress of the group {group!r}",
        Frame(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group}),
        lambda answer: sorted(
            {str(json.loads(queue)["topic"]) for queue in table_of(answer).get("offsetTable") or ()}
        ),
    )


def members(group: str) -> ServerCall[list[str]]:
    """Ask a broker for the ids of the live members of a group."""
    return ServerCall(
        f"the members of the group {group!r}",
        Frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
        lambda answer: sorted(table_of(answer)["consumerIdList"]) if succeeded(answer) else [],
        lambda answer: succeeded(answer) or _NO_MEMBER in answer.remark,
    )
