"""A payment in SQLite and its message: consumers see the message only if the payment was made."""
# ruff: noqa: T201

import sqlite3
from contextlib import closing
from tempfile import TemporaryDirectory

from client_arguments import given_server
from pyrocket import LocalTransactionState, Message, StoredMessage
from pyrocket.client import Producer, PullConsumer


def run(statement: str, *values: object) -> list[object]:
    with closing(sqlite3.connect(f"{folder}/shop.db")) as database, database:
        return database.execute(statement, values).fetchall()


class Payments:
    def execute(self, message: StoredMessage, amount: int) -> LocalTransactionState | None:
        if amount > 50:
            return LocalTransactionState.ROLLBACK
        run("INSERT INTO payments VALUES (?, ?)", message.msg_id, amount)
        return None if "eve" in message.keys else LocalTransactionState.COMMIT  # None: unknown

    def check(self, message: StoredMessage) -> LocalTransactionState | None:  # in another thread
        found = run("SELECT 1 FROM payments WHERE id = ?", message.msg_id)
        return LocalTransactionState.COMMIT if found else None  # None: not found yet, ask again


server = given_server()
producer = Producer("till", **server, create=True, listener=Payments())
consumer = PullConsumer("receipts", **server, consume_from="first")
with TemporaryDirectory() as folder, producer, consumer:
    run("CREATE TABLE payments (id TEXT, amount INTEGER)")
    for payer, amount in (("ann", 30), ("bob", 70), ("eve", 20)):
        message = Message(topic="paid", body=f"{payer} paid {amount}".encode(), keys=[payer])
        print(payer, producer.send_in_transaction(message, amount, immunity_s=0).state.name)
    consumer.assign(consumer.queues("paid"))
    for _ in range(2):
        print(consumer.poll(90, 1)[0].body.decode())
