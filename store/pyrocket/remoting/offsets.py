"""The ranges of the queues of topics at one broker, and the offsets of consumer groups."""

from collections.abc import Collection, Mapping

from pyrocket.errors import GroupNotFoundError
from pyrocket.remoting.calls import Ask, ResponseCode
from pyrocket.remoting.requests import (
    commit,
    committed,
    highest_offset,
    lowest_offset,
    pull,
    topic_offsets,
    write_group,
    write_topic,
)
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import MessageQueue, QueueOffsets

_RETRY_PREFIX = "%RETRY%"


def topic_bounds(
    ask: Ask, topics: Mapping[str, TopicConfig | None]
) -> dict[str, dict[int, QueueOffsets] | None]:
    """Return the range of each read queue of topics, in one flight; None if the broker lacks one.

    topics: The settings of the topics in their routes, None for topics without a route.

    RocketMQ 4.9 does not answer for queues that can only be read; these are asked for one by one.
    """
    read_only = [
        (name, queue_id)
        for name, topic in topics.items()
        if topic is not None
        for queue_id in range(topic.write_queues, topic.read_queues)
    ]
    whole = [topic_offsets(name, also=[ResponseCode.TOPIC_NOT_EXIST]) for name in topics]
    ends = [call(*queue) for queue in read_only for call in (lowest_offset, highest_offset)]
    answers = iter(ask([*whole, *ends]))
    bounds: dict[str, dict[int, QueueOffsets] | None] = {}
    for name, topic in topics.items():
        answer = next(answers)
        bounds[name] = (
            None
            if answer is None
            else {
                queue_id: QueueOffsets(has.minimum, has.maximum)
                for queue_id, has in answer.items()
                if topic is None or queue_id < topic.read_queues
            }
        )
    for name, queue_id in read_only:
        has, of_topic = QueueOffsets(next(answers), next(answers)), bounds[name]
        if of_topic is not None:
            of_topic[queue_id] = has
    return bounds


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
