"""Each member of a broadcasting group receives all messages, for example to update its cache."""
# ruff: noqa: T201

from queue import Queue
from uuid import uuid4

from client_arguments import given_server
from pyrocket import Message, StoredMessage
from pyrocket.client import ConsumeResult, Producer, PushConsumer

PRICES = {"apple": "30", "pear": "45"}
server, updates = given_server(), Queue[str]()


def till(name: str) -> PushConsumer:
    """Return a consumer that gets all prices: a known name would continue at its offsets in ~."""

    def update(messages: list[StoredMessage]) -> ConsumeResult:
        for message in messages:
            updates.put(f"{name}: {message.keys[0]} costs {message.body.decode()}")
        return ConsumeResult.SUCCESS

    return PushConsumer(
        "tills",
        **server,
        instance=f"{name}-{uuid4()}",
        subscriptions={"prices": "*"},
        listener=update,
        consume_from="first",
        message_model="BROADCASTING",
    )


with Producer(**server, create=True) as producer:
    for fruit, price in PRICES.items():
        producer.send(Message(topic="prices", body=price.encode(), keys=[fruit]))
with till("till-1"), till("till-2"):
    for _ in range(2 * len(PRICES)):
        print(updates.get(timeout=60))
