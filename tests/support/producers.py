"""Functions of writer processes, in a module that spawned processes can import."""

from itertools import count
from multiprocessing import parent_process

import pyarrow as pa
from pyrocket import Message, Store

ROWS, PAUSE_SECONDS = 10, 0.03
COMMITS = 25


def produce(path, producer, sent, ended):
    """Append numbered messages until `ended` is set or the parent has exited. Batches and single
    messages alternate, with pauses, so that running queries keep up. `sent[producer]` is the number
    of messages.
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
    """Commit offsets continuously: in one queue for a shared group, and for this process's own
    group.
    """
    with Store.open(path) as store:
        for offset in range(1, COMMITS + 1):
            store.groups.commit("shared", "t", {queue_id: offset})
            store.groups.commit(f"own{queue_id}", "t", {0: offset})


def send_one(path):
    """Append one message to queue 0."""
    with Store.open(path) as store:
        store.append(Message(topic="t", body=b"x", queue_id=0))
