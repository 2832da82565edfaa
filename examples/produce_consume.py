"""A producer sends orders, and a consumer of the group `billing` receives them.

python3 examples produce_consume --path /tmp/shop
"""
# ruff: noqa: T201

from queue import Queue

from client_arguments import given_server
from pyrocket import Message, StoredMessage
from pyrocket.client import ConsumeResult, Producer, PushConsumer

ORDERS = [("ann", "3 apples"), ("eve", "1 pear"), ("ann", "2 plums")]
billed = Queue[str]()


def bill(messages: list[StoredMessage]) -> ConsumeResult:
    """Consume a batch; several threads call this at the same time."""
    for message in messages:
        billed.put(f"billed {message.keys[0]} for {message.body.decode()}")
    return ConsumeResult.SUCCESS


server = given_server()
with Producer(**server, create=True) as producer:
    for customer, order in ORDERS:
        sent = producer.send(Message(topic="orders", body=order.encode(), keys=[customer]))
        print(f"sent {order}: {sent.status.name}")

# A group without committed offsets starts at the first message. The next start continues after the
# offsets that this one commits.
with PushConsumer(
    "billing", **server, subscriptions={"orders": "*"}, listener=bill, consume_from="first"
):
    for _ in ORDERS:
        print(billed.get(timeout=60))
