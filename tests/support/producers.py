"""Functions of writer processes, in a module that spawned processes can import."""

from pyrocket import Message, Store

COMMITS = 25


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
