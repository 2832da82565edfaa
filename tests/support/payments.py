"""Messages about payments that must be made once."""

import random
import sqlite3

from pyrocket.client.deduplication.listener import Deduplicated
from pyrocket.client.deduplication.sqlite import SqliteMarks
from pyrocket.client.deduplication.transaction import TransactionMarks
from pyrocket.client.results import ConsumeResult
from pyrocket.values.message import StoredMessage

TOPIC, LEASE_MS = "payments", 1000


def payment(keys, topic=TOPIC, msg_id="id"):
    return StoredMessage(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        store_size=100,
        body=keys.encode(),
        properties={"KEYS": keys} if keys else {},
        born_timestamp=0,
        store_timestamp=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
        msg_id=msg_id,
    )


def pay_until_death(path, seed, orders, atomic):
    """Pay orders that are delivered repeatedly, in random order, until the process is killed.

    If `atomic`, payments and marks are in one transaction. Otherwise each payment is committed
    before its mark is done.
    """
    rng = random.Random(seed)
    database = sqlite3.connect(f"{path}/shop.db", timeout=30)

    def pay(messages):
        for message in messages:
            database.execute("INSERT INTO payments VALUES (?)", (message.keys[0],))
        if not atomic:
            database.commit()
        return ConsumeResult.SUCCESS

    if atomic:
        store = TransactionMarks(lambda: database, group="billing")
    else:
        store = SqliteMarks(f"{path}/marks.db", group="billing")
    listener = Deduplicated(pay, store=store, lease_ms=LEASE_MS)
    while True:
        listener([payment(f"o-{rng.randrange(orders)}") for _ in range(rng.choice((1, 4)))])
