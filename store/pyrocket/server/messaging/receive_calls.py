"""ReceiveMessage: receives messages for a group."""

from dataclasses import dataclass
from typing import Any

from pyrocket.broker.broker import Broker
from pyrocket.broker.polls import FIRST_MS, RELEASED_MS
from pyrocket.broker.pop.values import Delivery, Received
from pyrocket.errors import GroupNotFoundError
from pyrocket.filters.message_filter import MessageFilter
from pyrocket.formats.record import Host
from pyrocket.server.messaging.caller import Caller, check_id, filter_of, readable_topic
from pyrocket.server.messaging.codes import RefusedError, status
from pyrocket.server.messaging.delivered import message_of
from pyrocket.server.messaging.interface import ms_of, new, put_ms
from pyrocket.server.messaging.telemetry import MAX_BATCH
from pyrocket.store import consumption_of

MIN_INVISIBLE_MS, MAX_INVISIBLE_MS = 10_000, 12 * 3_600_000


@dataclass(frozen=True)
class Receive:
    """The parameters of a receive. `topic` is checked; `resource` is the topic in the request.

    wait_ms: The requested wait; None if the request has none.
    renews: Whether the broker renews the invisible time while the client is connected.
    """

    client: tuple[str, str]
    host: Host
    group: str
    topic: str
    resource: Any
    where: MessageFilter
    max_messages: int
    invisible_ms: int
    wait_ms: int | None
    renews: bool
    attempt_id: str


def parse_receive(request: Any, caller: Caller) -> Receive:
    """Check a request and the rights of its user, and return its parameters.

    The queue of the request is ignored.
    """
    resource = request.message_queue.topic
    topic, group = caller.topic(resource), caller.group(request.group)
    caller.admit("ReceiveMessage", [topic], [group])
    check_id("attempt id", request.attempt_id)
    invisible_ms = FIRST_MS
    if not request.auto_renew:
        invisible_ms = ms_of(request.invisible_duration)
        check_invisible(invisible_ms, MIN_INVISIBLE_MS)
    waits = request.HasField("long_polling_timeout")
    return Receive(
        client=caller.key,
        host=caller.host,
        group=group,
        topic=topic,
        resource=resource,
        where=filter_of(request.filter_expression),
        max_messages=min(max(int(request.batch_size), 1), MAX_BATCH),
        invisible_ms=invisible_ms,
        wait_ms=ms_of(request.long_polling_timeout) if waits else None,
        renews=bool(request.auto_renew),
        attempt_id=request.attempt_id,
    )


def receive(broker: Broker, asked: Receive, longest: int | None) -> Received:
    """Deliver messages without waiting; a missing group is created if the broker does that.

    Raises LongBodyError if a body has more than `longest` bytes.
    """
    readable_topic(consumption_of(broker.store), asked.topic)
    try:
        return _receive(broker, asked, longest)
    except GroupNotFoundError:
        broker.consumers.group(asked.group)
        return _receive(broker, asked, longest)


def _receive(broker: Broker, asked: Receive, longest: int | None) -> Received:
    received = broker.pop.receive(
        asked.group,
        asked.topic,
        max_messages=asked.max_messages,
        invisible_ms=asked.invisible_ms,
        where=asked.where,
        attempt_id=asked.attempt_id,
        longest=longest,
    )
    if asked.renews:
        handles = [(delivery.handle, delivery.attempt) for delivery in received.messages]
        broker.polls.renewals.add(asked.group, asked.topic, asked.client, handles)
    return received


def receive_replies(broker: Broker, asked: Receive, received: Received) -> list[bytes]:
    """Return all replies of a call, in the order that clients require."""
    if broker.traces is not None:
        broker.traces.delivered(asked.host, asked.group, asked.topic, received.messages)
    outcome = status("OK" if received.messages else "MESSAGE_NOT_FOUND")
    replies = [new("ReceiveMessageResponse", status=outcome)]
    replies += [
        new("ReceiveMessageResponse", message=_message(asked, delivery))
        for delivery in received.messages
    ]
    return [reply.SerializeToString() for reply in (*replies, delivery_time(broker))]


def delivery_time(broker: Broker) -> Any:
    """Return the last reply of every call, with the delivery time."""
    last = new("ReceiveMessageResponse")
    last.delivery_timestamp.SetInParent()
    put_ms(last.delivery_timestamp, broker.store.now())
    return last


def _message(asked: Receive, delivery: Delivery) -> Any:
    message = message_of(delivery.message, asked.resource)
    system = message.system_properties
    system.receipt_handle, system.delivery_attempt = delivery.handle, delivery.attempt
    put_ms(system.invisible_duration, asked.invisible_ms)
    return message


def release(broker: Broker, asked: Receive, received: Received) -> None:
    """Make messages visible again soon, because the reply with them could not be sent."""
    handles = [delivery.handle for delivery in received.messages]
    broker.polls.renewals.remove(handles)
    if handles:
        broker.pop.extend(asked.group, asked.topic, handles, RELEASED_MS)


def check_invisible(ms: int, minimum: int = 0) -> None:
    """Reject an invisible time that is out of range."""
    if not minimum <= ms <= MAX_INVISIBLE_MS:
        raise RefusedError(
            "ILLEGAL_INVISIBLE_TIME",
            f"the invisible time must be {minimum} to {MAX_INVISIBLE_MS} ms, not {ms}.",
        )
