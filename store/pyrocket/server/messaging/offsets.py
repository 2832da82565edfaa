"""UpdateOffset, GetOffset and QueryOffset: offsets of groups and of queues."""

from functools import partial
from typing import Any

from pyrocket.broker.broker import Broker
from pyrocket.errors import OffsetOutOfRangeError
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, status
from pyrocket.server.messaging.interface import ms_of, name_of, new
from pyrocket.store import Store


def update_offset(broker: Broker, request: Any, caller: Caller) -> Any:
    """Commit an offset of an existing group; it may be lower than the previous one."""
    topic, group, queue_id = _place(request, caller, "UpdateOffset")
    broker.store.groups.get(group)
    offset, has = int(request.offset), range_of(broker.store, topic, queue_id)
    if not has[0] <= offset <= has[1]:
        raise out_of_range(topic, queue_id, offset, *has)
    to = {queue_id: offset}
    commit = partial(broker.store.groups.commit, group, topic, to, backwards=True)
    broker.restart(group, topic, commit, to)
    return new("UpdateOffsetResponse", status=status("OK"))


def get_offset(broker: Broker, request: Any, caller: Caller) -> Any:
    """Return the offset that a group has committed."""
    topic, group, queue_id = _place(request, caller, "GetOffset")
    range_of(broker.store, topic, queue_id)
    offset = broker.store.groups.committed(group, topic).get(queue_id)
    if offset is None:
        raise RefusedError("OFFSET_NOT_FOUND", f"{group} has no committed offset in this queue.")
    return new("GetOffsetResponse", status=status("OK"), offset=offset)


def query_offset(broker: Broker, request: Any, caller: Caller) -> Any:
    """Return the minimum or maximum offset, or the first offset at or after a time."""
    topic = caller.topic(request.message_queue.topic)
    caller.admit("QueryOffset", [topic])
    queue_id = int(request.message_queue.id)
    minimum, maximum = range_of(broker.store, topic, queue_id)
    policy = name_of("QueryOffsetPolicy", request.query_offset_policy)
    if policy == "TIMESTAMP":
        if not request.HasField("timestamp"):
            raise RefusedError("BAD_REQUEST", "the policy TIMESTAMP needs a timestamp.")
        offset = broker.store.offset_by_time(topic, queue_id, ms_of(request.timestamp))
    elif policy in ("BEGINNING", "END"):
        offset = minimum if policy == "BEGINNING" else maximum
    else:
        raise RefusedError("BAD_REQUEST", "the policy is unknown.")
    return new("QueryOffsetResponse", status=status("OK"), offset=offset)


def range_of(store: Store, topic: str, queue_id: int) -> tuple[int, int]:
    """Return the queue's offset range. Raises TopicNotFoundError, QueueNotFoundError."""
    return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)


def _place(request: Any, caller: Caller, call: str) -> tuple[str, str, int]:
    topic, group = caller.topic(request.message_queue.topic), caller.group(request.group)
    caller.admit(call, [topic], [group])
    return topic, group, int(request.message_queue.id)


def out_of_range(
    topic: str, queue_id: int, offset: int, minimum: int, maximum: int
) -> OffsetOutOfRangeError:
    """Return the error for an offset out of a queue's range."""
    return OffsetOutOfRangeError(
        f"offset {offset} is out of range: queue {queue_id} of {topic} accepts {minimum} to"
        f" {maximum}, the end of the queue."
    )
