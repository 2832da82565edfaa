"""Uses the store without Spark: appends messages, and reads them queue by queue."""
# ruff: noqa: T201

import tempfile

from pyrocket import Message, Store

with tempfile.TemporaryDirectory() as folder, Store.open(folder, create=True) as store:
    store.topics.create("orders", read_queues=2, write_queues=2)
    for number, customer in enumerate(["ann", "eve", "ann"]):
        order = Message(topic="orders", body=f"order {number}".encode(), sharding_key=customer)
        sent = store.append(order)
        print(f"order {number} of {customer}: queue {sent.queue_id}, offset {sent.queue_offset}")
    for message in store.messages("orders"):
        print(f"queue {message.queue_id} contains {message.body.decode()}")
