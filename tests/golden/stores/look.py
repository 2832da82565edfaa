"""Describes the content of a golden store as JSON. The release that wrote the store recorded the
result; later releases compare their results with it. Uses only the public API, so that every
release can run it.
"""

PROPERTIES = {"topic", "queue_id", "queue_offset", "physical_offset", "store_size", "properties"}
PLAIN = PROPERTIES | {"born_timestamp", "store_timestamp", "flag", "sys_flag", "msg_id"}
GROUPS = ["billing", "audit"]
QUERIES = [("stream-1", "sunk"), ("app-1", "orders")]
KEYS = ["o-0", "o-11", "o-12", "o-23", "all"]


def look(store):
    """Return everything that a reader can read, including all records of the log."""
    topics = store.topics.all()
    return {
        "uuid": store.uuid,
        "epoch": store.history.epoch,
        "topics": {
            name: [known.read_queues, known.write_queues, known.perm, known.topic_id]
            for name, known in topics.items()
        },
        "offsets": {
            f"{name}/{queue_id}": [known.minimum, known.maximum]
            for name in topics
            for queue_id, known in store.offsets(name).items()
        },
        "messages": [one for name in topics for one in messages_of(store, name)],
        "groups": {
            f"{group}/{name}": {str(key): at for key, at in offsets.items()}
            for group in GROUPS
            for name in store.groups.topics(group)
            for offsets in [store.groups.committed(group, name)]
        },
        "sinks": {f"{query}/{topic}": store.sink.last(query, topic) for query, topic in QUERIES},
        "undecided": [[one.topic, one.transaction_id] for one in store.transactions.pending()],
        "pending": sorted(map(list, pending(store))),
        "keys": {key: [keyed(one) for one in store.lookup.query("orders", key)] for key in KEYS},
    }


def messages_of(store, topic):
    """Return all messages of a topic, queue by queue."""
    for queue_id, known in store.offsets(topic).items():
        at = known.minimum
        while at < known.maximum:
            for one in store.read(topic, queue_id, at):
                yield plain(one)
                at = one.queue_offset + 1


def plain(one):
    """Return a stored message as JSON."""
    known = {name: getattr(one, name) for name in sorted(PLAIN)}
    return {**known, "properties": dict(one.properties), "body": one.body.decode()}


def keyed(one):
    """Return a message that a lookup by key found."""
    return [one.queue_id, one.queue_offset, one.body.decode()]


def pending(store):
    """Return topic, due time (ms) and body of pending messages."""
    for part in store.views.pending("scheduled"):
        for batch in store.views.scan_pending(part, []):
            for row in batch.to_pylist():
                due_ms = round(row["dueTimestamp"].timestamp() * 1000)
                yield row["topic"], due_ms, row["body"].decode()
