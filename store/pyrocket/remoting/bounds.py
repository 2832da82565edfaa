"""The ranges of the queues of topics at one broker, in one flight."""

from collections.abc import Mapping

from pyrocket.remoting.calls import Ask, ServerCall, has_code, succeeded
from pyrocket.remoting.codes import ResponseCode
from pyrocket.remoting.offsets import TopicOffset, highest_offset, lowest_offset, topic_offsets
from pyrocket.values.admin import TopicConfig
from pyrocket.values.message import QueueOffsets


def topic_bounds(
    ask: Ask, topics: Mapping[str, TopicConfig | None]
) -> dict[str, dict[int, QueueOffsets] | None]:
    """Return the range of each read queue of these topics; None for one that the broker lacks.

    topics: The settings of the topics in their routes, None for topics without a route.

    RocketMQ 4.9 does not answer for queues that can only be read; these are asked for one by one.
    """
    read_only = [
        (name, queue_id)
        for name, topic in topics.items()
        if topic is not None
        for queue_id in range(topic.write_queues, topic.read_queues)
    ]
    lowest = [lowest_offset(*queue) for queue in read_only]
    highest = [highest_offset(*queue) for queue in read_only]
    results = ask([*map(offsets_if_any, topics), *lowest, *highest])
    answers, ends = results[: len(topics)], results[len(topics) :]
    bounds: dict[str, dict[int, QueueOffsets] | None] = {}
    for (name, topic), answer in zip(topics.items(), answers, strict=True):
        count = len(answer or ()) if topic is None else topic.read_queues
        bounds[name] = _read_queues(answer, count)
    for at, (name, queue_id) in enumerate(read_only):
        of_topic = bounds[name]
        if of_topic is not None:
            of_topic[queue_id] = QueueOffsets(ends[at], ends[at + len(read_only)])
    return bounds


def _read_queues(
    answer: Mapping[int, TopicOffset] | None, count: int
) -> dict[int, QueueOffsets] | None:
    if answer is None:
        return None
    return {
        queue_id: QueueOffsets(has.minimum, has.maximum)
        for queue_id, has in answer.items()
        if queue_id < count
    }


def offsets_if_any(
    topic: str, *refusals: ResponseCode
) -> ServerCall[dict[int, TopicOffset] | None]:
    """Ask for the offsets of a topic; None if the broker does not have it, or refuses the call."""
    call = topic_offsets(topic)
    return ServerCall(
        call.asked,
        call.request,
        lambda answer: call.read(answer) if succeeded(answer) else None,
        has_code(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, *refusals),
    )
