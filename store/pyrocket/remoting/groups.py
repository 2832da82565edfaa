"""The offsets of consumer groups at a broker, as `SourceCalls` promises them."""

from collections.abc import Collection, Mapping

from pyrocket.errors import GroupNotFoundError
from pyrocket.remoting.calls import Ask
from pyrocket.remoting.messages import pull, write_group, write_topic
from pyrocket.remoting.offsets import commit, committed
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import MessageQueue

_RETRY_PREFIX = "%RETRY%"


def committed_offsets(
    ask: Ask, group: str, queues: Collection[MessageQueue]
) -> dict[MessageQueue, int]:
    """Return the committed offsets of a group; queues without one are left out."""
    offsets = ask([committed(group, queue.topic, queue.queue_id) for queue in queues])
    return {queue: at for queue, at in zip(queues, offsets, strict=True) if at is not None}


def commit_offsets(
    ask: Ask,
    group: str,
    offsets: Mapping[MessageQueue, int],
    before: Mapping[MessageQueue, int],
) -> None:
    """Commit offsets of a group, which is created if it is missing.

    before: The offsets of the group in the same topics. The first commit in a topic is made alone,
        because RocketMQ 4.9 can lose others that are made at the same time.
    """
    known = {queue.topic for queue, at in before.items() if at}
    firsts = {queue.topic: queue for queue in offsets if queue.topic not in known}
    rest = [queue for queue in offsets if queue not in firsts.values()]
    for flight in (firsts.values(), rest):
        calls = [commit(group, queue.topic, queue.queue_id, offsets[queue]) for queue in flight]
        try:
            ask(calls)
        except GroupNotFoundError:
            create_group(ask, group)
            ask(calls)


def create_if_missing(ask: Ask, group: str, queue: MessageQueue, end: int) -> None:
    """Create a group unless the broker lets it pull from the end of a queue."""
    try:
        ask([pull(queue.topic, queue.queue_id, end, 1, group=group)])
    except GroupNotFoundError:
        create_group(ask, group)


def create_group(ask: Ask, group: str) -> None:
    """Create a group, with the topic of its retries, without which tools do not list it.

    Needs the right to administer. Settings of an existing group would be replaced.
    """
    ask([write_group(group), write_topic(TopicConfig(_RETRY_PREFIX + group, 1, 1))])
