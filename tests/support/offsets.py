"""Short forms of queues and offsets for tests: a queue is a topic and a queue id, on a single
broker.
"""

import json

from pyrocket import MessageQueue, QueueRange
from pyspark_pyrocket.options.read import ReadOptions
from pyspark_pyrocket.options.topics import SubscribedTopics
from pyspark_pyrocket.source.offsets import Offsets
from pyspark_pyrocket.source.stream_offset import StreamOffset

BROKER = "broker-a"


def at(topic, queue_id, broker=BROKER):
    """Return a queue of the test's broker."""
    return MessageQueue(topic, broker, queue_id)


def by_queue(topics):
    """Convert {topic: {queue id: value}} to {queue: value}."""
    return {
        at(topic, queue): value
        for topic, queues in topics.items()
        for queue, value in queues.items()
    }


def offsets(topics=None, **more):
    """Return the offsets of {topic: {queue id: offset}}."""
    return Offsets(by_queue({**(topics or {}), **more}))


def as_asked(**options):
    """Return the options for a read of topic t."""
    return ReadOptions(path="/s", subscription=SubscribedTopics(("t",)), **options)


def span(topic, queue_id, start, end):
    """Return an offset range of a queue."""
    return QueueRange(at(topic, queue_id), start, end)


def through_spark(offset):
    """Return an offset as Spark restores it from a checkpoint."""
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))
