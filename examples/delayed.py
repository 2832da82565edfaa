"""Delayed messages: after the delay of a level, or at a time. Until then, no consumer sees them."""
# ruff: noqa: T201

from queue import Queue

from client_arguments import given_server
from pyrocket import Message, StoredMessage
from pyrocket.base.clock import system_clock
from pyrocket.client import ConsumeResult, Producer, PushConsumer

arrived = Queue[str]()


def remind(messages: list[StoredMessage]) -> ConsumeResult:
    """Consume a batch of reminders; `born_timestamp` is the time at which they were sent."""
    for message in messages:
        delay_ms = system_clock() - message.born_timestamp
        arrived.put(f"{message.body.decode()} after {delay_ms / 1000:.1f} s")
    return ConsumeResult.SUCCESS


server = given_server()
with Producer(**server, create=True) as producer:
    producer.send(Message(topic="reminders", body=b"at once"))
    # Level 1 of RocketMQ's 18 levels is 1 s, level 5 is 1 min, and level 18 is 2 h.
    producer.send(Message(topic="reminders", body=b"level 1", delay_level=1))
    at = system_clock() + 2_500
    producer.send(Message(topic="reminders", body=b"at a time", deliver_at_ms=at))

with PushConsumer(
    "reminding", **server, subscriptions={"reminders": "*"}, listener=remind, consume_from="first"
):
    for _ in range(3):
        print(arrived.get(timeout=60))
