"""The code of writing processes; a separate module, so that spawned processes can import it."""

from itertools import count
from multiprocessing import parent_process

import pyarrow as pa
from pyrocket import Message, Store

ROWS, PAUSE_SECONDS = 10, 0.03
COMMITS = 25


def produce(path, producer, sent, ended):
    """Append numbered messages until `ended` is set or the parent has ended.

    Alternately in batches and one by one, with pauses, so that reading queries keep up.
    `sent[producer]` is their number.
    """
    with Store.open(path) as store:
        for round_ in count():
            bodies = [f"{producer}:{sent[producer] + row}" for row in range(ROWS)]
            if round_ % 5:
                store.append_batch(pa.record_batch({"body": bodies}), topic="t")
            else:
                for body in bodies:
                    store.append(Message(topic="t", body=body.encode(), sharding_key=str(producer)))
            sent[producer] += ROWS
            if ended.wait(PAUSE_SECONDS) or not parent_process().is_alive():
                return


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
