"""Messages for benchmarks: random bodies, and the properties that a real producer sends."""

import os

import pyarrow as pa

MAP = pa.map_(pa.string(), pa.string())
DEFAULT_COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "body", "properties",
    "bornTimestamp", "storeTimestamp",
)  # fmt: skip


def batch(rows, body_bytes, *, rich=True):
    """Return rows with bodies of this size and, if `rich`, tags, a key and one property each."""
    noise = os.urandom(rows * body_bytes)
    bodies = [noise[at : at + body_bytes] for at in range(0, rows * body_bytes, body_bytes)]
    if not rich:
        return pa.record_batch({"body": pa.array(bodies, pa.binary())})
    return pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            "tags": ["TagA"] * rows,
            "keys": [f"k{row}" for row in range(rows)],
            "properties": pa.array([[("color", "red")]] * rows, MAP),
        }
    )


def fill(store, topic, rows, body_bytes, *, queues=2, rich=True):
    """Append `rows` messages in batches of 10,000, or of fewer if the bodies are long."""
    store.topics.create(topic, read_queues=queues, write_queues=queues)
    size = min(rows, 10_000, max(1, (32 << 20) // body_bytes))
    one = batch(size, body_bytes, rich=rich)
    for number in range(rows // size):
        store.append_batch(one, topic=topic, first_queue=number)
