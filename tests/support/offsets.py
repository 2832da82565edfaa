"""Queues and offsets as tests write them: by topic and queue id, on the only broker."""

import json

from pyrocket import MessageQueue
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import Subscription
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset
from pyspark_pyrocket.transport.interface import QueueRange

BROKER = "broker-a"


def at(topic, queue_id, broker=BROKER):
    """A queue of the test's broker."""
    return MessageQueue(topic, broker, queue_id)


def by_queue(topics):
    """{topic: {queue id: value}} with queues as keys."""
    return {
        at(topic, queue): value
        for topic, queues in topics.items()
        for queue, value in queues.items()
    }


def offsets(topics=None, **more):
    """Offsets of {topic: {queue id: offset}}."""
    return Offsets(by_queue({**(topics or {}), **more}))


def as_asked(**options):
    """Options of a read of topic t, for functions that take them whole."""
    return ReadOptions(path="/s", subscription=Subscription(("t",)), **options)


def span(topic, queue_id, start, end):
    """A range of a queue."""
    return QueueRange(at(topic, queue_id), start, end)


def through_spark(offset):
    """An offset as it comes back from a checkpoint."""
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))
