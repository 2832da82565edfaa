"""What writing processes do; a module of its own, so that spawned processes can import it."""

import pyarrow as pa
from pyrocket import Message, Store

PRODUCERS, BATCHES, ROWS = 4, 25, 40
COMMITS = 25


def produce(path, producer):
    """Append numbered messages, in batches and one by one in turn."""
    with Store.open(path) as store:
        number = 0
        for round_ in range(BATCHES):
            bodies = [f"{producer}:{number + row}" for row in range(ROWS)]
            number += ROWS
            if round_ % 5:
                store.append_batch(pa.record_batch({"body": bodies}), topic="t")
                continue
            for body in bodies:
                store.append(Message(topic="t", body=body.encode(), sharding_key=str(producer)))


def commit_often(path, queue_id):
    """Commit one message after the other: in a queue of a shared group, and in a group of one."""
    with Store.open(path) as store:
        for offset in range(1, COMMITS + 1):
            store.groups.commit("shared", "t", {queue_id: offset})
            store.groups.commit(f"own{queue_id}", "t", {0: offset})


def send_one(path):
    """Append one message to queue 0."""
    with Store.open(path) as store:
        store.append(Message(topic="t", body=b"x", queue_id=0))
