"""One payment per order, even if its message is repeated: mark and work are committed together."""
# ruff: noqa: T201

import sqlite3
from contextlib import closing
from queue import Queue

from client_arguments import given_server
from pyrocket import Message, StoredMessage
from pyrocket.client import ConsumeResult, Deduplicated, Producer, PushConsumer, TransactionMarks


def pay(messages: list[StoredMessage]) -> ConsumeResult:
    """Insert payments, in the transaction that also contains the marks."""
    for message in messages:
        row = message.keys[0], int(message.body)
        database.execute("INSERT INTO payments VALUES (?, ?)", row)
    return ConsumeResult.SUCCESS


server, results = given_server(), Queue[str]()
with Producer(**server, create=True) as producer:
    # The producer got no answer for o-1, and sent it again with the same key.
    for order, amount in (("o-1", 30), ("o-2", 10), ("o-1", 30)):
        producer.send(Message(topic="invoices", body=b"%d" % amount, keys=[order]))

# The only listener thread (`thread_max`) and this one use the connection in turn.
with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
    database.execute("CREATE TABLE payments (order_id TEXT, amount INTEGER)")
    marks = TransactionMarks(lambda: database, group="payments")
    marks.create_table()
    with PushConsumer(
        "payments", **server, subscriptions={"invoices": "*"}, consume_from="first", thread_max=1,
        listener=Deduplicated(pay, store=marks),
        after_consume=lambda messages, result: results.put(messages[0].keys[0]),
    ):  # fmt: skip
        for _ in range(3):
            print(f"delivered {results.get(timeout=60)}")
    for order, amount in database.execute("SELECT * FROM payments ORDER BY order_id"):
        print(f"paid {amount} for {order}")
