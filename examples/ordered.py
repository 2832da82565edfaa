"""Order by key: one queue for each order. Global order: a topic that has only one queue."""
# ruff: noqa: T201

from queue import Queue

from client_arguments import given_server
from pyrocket import Message, StoredMessage
from pyrocket.client import ConsumeResult, Producer, PushConsumer
from pyrocket.tools.session import Place, open_session

server, seen = given_server(), Queue[str]()


def note(messages: list[StoredMessage]) -> ConsumeResult:
    """Consume a batch. If it fails, the queue waits, and the batch is delivered again."""
    for message in messages:
        seen.put(f"{message.topic}: {message.body.decode()}")
    return ConsumeResult.SUCCESS


with open_session(Place(**server), write=True, create=True) as session:
    session.admin.topics.create("steps", read_queues=4, write_queues=4, perm=6)
    session.admin.topics.create("journal", read_queues=1, write_queues=1, perm=6)

with Producer(**server) as producer:
    for step in ("created", "paid", "shipped"):
        for order in ("o-1", "o-2"):
            body = f"{order} {step}".encode()
            producer.send(Message(topic="steps", body=body, sharding_key=order))
            producer.send(Message(topic="journal", body=body))

topics = {"steps": "*", "journal": "*"}
with PushConsumer(
    "audit", **server, subscriptions=topics, listener=note, orderly=True, consume_from="first"
):
    for _ in range(12):
        print(seen.get(timeout=60))
