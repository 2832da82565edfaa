"""One payment per order, even if it is delivered twice: mark and work are committed together."""
# ruff: noqa: T201

import sqlite3
import tempfile

from pyrocket import Message, Store, StoredMessage
from pyrocket.client.deduplication.listener import Deduplicated
from pyrocket.client.deduplication.transaction import TransactionMarks
from pyrocket.client.results import ConsumeResult

with tempfile.TemporaryDirectory() as folder, Store.open(folder, create=True) as store:
    store.topics.create("orders", read_queues=1, write_queues=1)
    # The producer got no answer for o-1, and sent it again with the same key.
    for order, amount in (("o-1", 30), ("o-2", 10), ("o-1", 30)):
        store.append(Message(topic="orders", body=b"%d" % amount, keys=[order]))

    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE payments (order_id TEXT, amount INTEGER)")

    def pay(messages: list[StoredMessage]) -> ConsumeResult:
        """Insert payments, in the transaction that also contains the marks."""
        for message in messages:
            row = message.keys[0], int(message.body)
            database.execute("INSERT INTO payments VALUES (?, ?)", row)
        return ConsumeResult.SUCCESS

    marks = TransactionMarks(lambda: database, group="billing")
    marks.create_table()
    listener = Deduplicated(pay, store=marks)
    for delivery in ("first delivery", "delivered again after a rebalance"):
        for message in store.messages("orders"):
            print(f"{delivery}: {message.keys[0]} {listener([message]).status.name}")
    for order, amount in database.execute("SELECT order_id, amount FROM payments"):
        print(f"paid {amount} for {order}")
    database.close()
