"""Checks the messages of a producer, compresses bodies, and forms batches.

Source: `Validators`, `DefaultMQProducerImpl`, `MessageBatch.generateFromList`.
"""

from collections.abc import Iterator, Sequence

from pyrocket.base.arguments import check_type
from pyrocket.engine.message_encoder import check_message
from pyrocket.errors import MessageError
from pyrocket.formats.compression import stored_body
from pyrocket.formats.properties import check_message_kinds
from pyrocket.formats.system_topics import RETRY_PREFIX
from pyrocket.metadata.topics import check_topic_name
from pyrocket.values.message import Message, OutgoingMessage

MAX_BATCH_BYTES = 4 * 1024 * 1024

_ELEMENT_BYTES = 22
"""Size of a message of a batch without its body and properties."""


def check_outgoing(message: Message, max_bytes: int = MAX_BATCH_BYTES) -> None:
    """Raise MessageError, TopicNameError unless a producer can send the message."""
    check_message_kinds(message)
    check_topic_name(message.topic)
    check_message(message, max_bytes)


def outgoing(message: Message, unique_id: str, now_ms: int) -> OutgoingMessage:
    """Return a checked message as it is sent; its body is compressed if that makes it shorter."""
    body, sys_flag = stored_body(message.body)
    return OutgoingMessage(message, body, unique_id, now_ms, sys_flag)


def check_batch(messages: Sequence[Message], max_bytes: int = MAX_BATCH_BYTES) -> None:
    """Raise MessageError unless the messages can be sent as one batch.

    They must have one topic, equal queue ids and equal sharding keys, no delays, and together at
    most `max_bytes`. The topic must not be a retry topic.
    """
    check_type((list, tuple), "Use a list of pyrocket.Message(topic=…, body=…).", messages=messages)
    if not messages:
        _refuse("the batch is empty", "Send at least one message.", "BATCH_EMPTY")
    for message in messages:
        check_outgoing(message, max_bytes)
        if message.delay_level or message.deliver_at_ms is not None:
            _refuse(
                "a message of the batch has a delay", "Send it without a batch.", "BATCH_DELAYED"
            )
    if messages[0].topic.startswith(RETRY_PREFIX):
        _refuse("the batch is for a retry topic", "Use another topic.", "BATCH_TOPIC")
    for name in ("topic", "queue_id", "sharding_key"):
        values = {getattr(message, name) for message in messages}
        if len(values) > 1:
            _refuse(
                f"the messages of the batch have {len(values)} values of {name}",
                "Send one batch for each.",
                "BATCH_DIFFERS",
            )
    size = sum(map(batch_bytes, messages))
    if size > max_bytes:
        _refuse(
            f"the batch has {size} bytes; the maximum is {max_bytes}",
            "Divide it with `split_batch`.",
            "BATCH_TOO_LARGE",
        )


def split_batch(
    messages: Sequence[Message], max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[Sequence[Message]]:
    """Divide messages into batches of at most `max_bytes` each, in order.

    A message that is larger is a batch by itself. Source: `ListSplitter` of RocketMQ's examples.

    >>> messages = [Message(topic="orders", body=bytes(60)) for _ in range(3)]
    >>> [len(batch) for batch in split_batch(messages, max_bytes=200)]
    [2, 1]
    """
    start = size = 0
    for index, message in enumerate(messages):
        more = batch_bytes(message)
        if size + more > max_bytes and index > start:
            yield messages[start:index]
            start, size = index, 0
        size += more
    if start < len(messages):
        yield messages[start:]


def batch_bytes(message: Message) -> int:
    """Return the size of a message in a batch, in bytes, without the id that producers add."""
    properties = {
        **message.properties,
        "TAGS": message.tags or "",
        "KEYS": message.keys if isinstance(message.keys, str) else " ".join(message.keys),
    }
    texts = sum(len(name.encode()) + len(text.encode()) + 2 for name, text in properties.items())
    return _ELEMENT_BYTES + len(message.body) + texts


def _refuse(reason: str, remedy: str, code: str) -> None:
    raise MessageError(f"{reason}.", remedy=remedy, code=code)
