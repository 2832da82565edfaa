"""PullMessage: reads messages of one queue, starting at an offset, without a group's state."""

from dataclasses import dataclass
from typing import Any

from pyrocket.filters.message_filter import MessageFilter
from pyrocket.server.messaging.caller import Caller, filter_of, readable_topic
from pyrocket.server.messaging.codes import status
from pyrocket.server.messaging.delivered import message_of
from pyrocket.server.messaging.interface import ms_of, new
from pyrocket.server.messaging.offsets import out_of_range, range_of
from pyrocket.server.messaging.telemetry import MAX_BATCH
from pyrocket.services.consumption import MAX_BODY_BYTES, MAX_SCAN
from pyrocket.store import Store, consumption_of
from pyrocket.values.message import StoredMessage


@dataclass(frozen=True)
class PullCall:
    """The parameters of a pull. `topic` is checked; `resource` is the topic in the request."""

    group: str
    topic: str
    resource: Any
    queue_id: int
    offset: int
    max_messages: int
    where: MessageFilter
    wait_ms: int


@dataclass(frozen=True)
class PullReply:
    """Messages, and the next offset to pull from, which follows all examined messages.

    has_more: Whether the queue has messages at or after the next offset.
    """

    messages: list[StoredMessage]
    next_offset: int
    has_more: bool


def parse_pull(request: Any, caller: Caller) -> PullCall:
    """Check a request and the rights of its user, and return its parameters."""
    queue = request.message_queue
    topic = caller.topic(queue.topic)
    groups = [caller.group(request.group)] if request.group.name else []
    caller.admit("PullMessage", [topic], groups)
    return PullCall(
        group=next(iter(groups), ""),
        topic=topic,
        resource=queue.topic,
        queue_id=int(queue.id),
        offset=int(request.offset),
        max_messages=min(max(int(request.batch_size), 1), MAX_BATCH),
        where=filter_of(request.filter_expression),
        wait_ms=ms_of(request.long_polling_timeout),
    )


def pull(store: Store, asked: PullCall, start: int, longest: int | None) -> PullReply:
    """Return messages, starting at offset `start`.

    Raises OffsetOutOfRangeError with the range, the errors of `readable_topic`, and
    LongBodyError if a body has more than `longest` bytes.
    """
    consumption = consumption_of(store)
    readable_topic(consumption, asked.topic)
    minimum, maximum = range_of(store, asked.topic, asked.queue_id)
    if not minimum <= start <= maximum:
        raise out_of_range(asked.topic, asked.queue_id, start, minimum, maximum)
    end = min(maximum, start + MAX_SCAN)
    fetched = consumption.fetch(
        asked.topic, asked.queue_id, start, end, asked.where, asked.max_messages
    )
    messages, next_offset, size = list[StoredMessage](), fetched.reached, 0
    for record in fetched.records:
        if (message := consumption.message_of(record, longest)) is None:
            continue
        messages.append(message)
        size += len(message.body)
        if size >= MAX_BODY_BYTES:
            next_offset = record.queue_offset + 1
            break
    return PullReply(messages, next_offset, has_more=next_offset < maximum)


def pull_replies(asked: PullCall, pulled: PullReply) -> list[bytes]:
    """Return all replies of a call: the status, the messages, and the next offset."""
    outcome = status("OK" if pulled.messages else "MESSAGE_NOT_FOUND")
    replies = [
        new("PullMessageResponse", status=outcome),
        *(
            new("PullMessageResponse", message=message_of(message, asked.resource))
            for message in pulled.messages
        ),
        new("PullMessageResponse", next_offset=pulled.next_offset),
    ]
    return [reply.SerializeToString() for reply in replies]
