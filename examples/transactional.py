"""A payment and its message: consumers see the message if and only if the payment was made."""
# ruff: noqa: T201

import tempfile

from pyrocket import LocalTransactionState as State
from pyrocket import Message, Store, StoredMessage, TransactionProducer


class Payments:
    """The local transactions, with a dictionary instead of a database."""

    def __init__(self) -> None:
        self.balance, self.paid = {"ann": 50, "eve": 10}, dict[str, bool]()

    def execute(self, message: StoredMessage, amount: int) -> State:
        """Move the money, and record the result under the transaction's id."""
        payer = message.keys[0]
        done = self.balance[payer] >= amount
        self.balance[payer] -= amount if done else 0
        self.paid[message.msg_id] = done
        return State.COMMIT if done else State.ROLLBACK

    def check(self, message: StoredMessage) -> State:
        """Return the state of an undecided transaction, for example after a crash."""
        return State.COMMIT if self.paid.get(message.msg_id) else State.ROLLBACK


with tempfile.TemporaryDirectory() as folder, Store.open(folder, create=True) as store:
    store.topics.create("paid", read_queues=1, write_queues=1)
    with TransactionProducer(store, "payments", Payments()) as producer:
        for payer, amount in (("ann", 30), ("eve", 30)):
            message = Message(topic="paid", body=f"{payer} paid {amount}".encode(), keys=[payer])
            print(f"{payer}: {producer.send(message, amount).state.name}")
    for seen in store.messages("paid"):
        print(f"topic paid: {seen.body.decode()}")
