"""The calls that write to a broker: messages, topics and groups.

Source: `SendMessageProcessor`, `SendMessageRequestHeaderV2`, `AdminBrokerProcessor`.
"""

import json
from dataclasses import dataclass, field

from pyrocket.remoting.calls import ServerCall
from pyrocket.remoting.codes import STORED, RequestCode, ResponseCode
from pyrocket.remoting.frames import Frame
from pyrocket.values.message import SendStatus
from pyrocket.values.topics import TopicConfig

_NO_TOPIC = ""
"""The topic whose settings a broker takes for a missing topic; without one, it creates none."""

_DEFAULT_TOPIC = "TBW102"
_STATUS = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


@dataclass(frozen=True, kw_only=True)
class OutgoingBody:
    """A message, or a batch of messages, for one queue of a topic that exists.

    Attributes:
        topic, queue_id: The queue.
        body: The body as it is stored, which may be compressed; or the encoded batch.
        properties: NAME, 0x01, VALUE, 0x02 for each property; for a batch, those of all messages.
        born_ms: When the message was sent first, in epoch milliseconds.
        flag: The flag of the application.
        sys_flag: Whether and how `body` is compressed.
        is_batch: Whether `body` is an encoded batch: see `MessageDecoder.encodeMessages`.
    """

    topic: str
    queue_id: int
    body: bytes = field(repr=False)
    properties: str = ""
    born_ms: int
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False


@dataclass(frozen=True)
class SendAnswer:
    """Where messages are stored.

    Attributes:
        status: SEND_OK; with another status they are stored, too.
        queue_id: The queue.
        queue_offset: The offset of the first message. That of a delayed message is in a system
            topic.
        message_ids: The offset id of each message.
    """

    status: SendStatus
    queue_id: int
    queue_offset: int
    message_ids: tuple[str, ...]


def send(message: OutgoingBody, group: str) -> ServerCall[SendAnswer]:
    """Store a message, or all messages of a batch. Repeated, it stores them again.

    `group` is the name of the producers.
    """
    fields = {
        "a": group,
        "b": message.topic,
        "c": _NO_TOPIC,
        "d": "0",
        "e": str(message.queue_id),
        "f": str(message.sys_flag),
        "g": str(message.born_ms),
        "h": str(message.flag),
        "i": message.properties,
        "j": "0",
        "k": "false",
        "m": "true" if message.is_batch else "false",
    }
    is_batch = message.is_batch
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    return ServerCall(
        f"messages for the topic {message.topic!r} queue {message.queue_id}",
        Frame(code, fields, message.body),
        _sent,
        lambda answer: answer.code in STORED,
    )


def _sent(answer: Frame) -> SendAnswer:
    return SendAnswer(
        _STATUS[ResponseCode(answer.code)],
        int(answer.fields["queueId"]),
        int(answer.fields["queueOffset"]),
        tuple(filter(None, answer.fields["msgId"].split(","))),
    )


def write_topic(topic: TopicConfig) -> ServerCall[None]:
    """Create a topic at a broker, or replace its settings. Needs the right to administer."""
    fields = {
        "topic": topic.name,
        "defaultTopic": _DEFAULT_TOPIC,
        "readQueueNums": str(topic.read_queues),
        "writeQueueNums": str(topic.write_queues),
        "perm": str(topic.perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true" if topic.ordered else "false",
    }
    return ServerCall(
        f"to write the topic {topic.name!r}",
        Frame(RequestCode.UPDATE_AND_CREATE_TOPIC, fields),
        lambda answer: None,
    )


def write_group(group: str) -> ServerCall[None]:
    """Create a consumer group at a broker, or replace its settings by the default ones."""
    body = json.dumps({"groupName": group}).encode()
    return ServerCall(
        f"to write the group {group!r}",
        Frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body),
        lambda answer: None,
    )
