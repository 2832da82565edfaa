"""Helpers to send and inspect delayed messages."""

import pyarrow as pa
from pyrocket.formats.queue_entry import parse_entries

from support.stores import batch, queue_files

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
DAY, NOW = 86_400_000, 1_700_000_000_000


def parked(store, topic, queue_id=0):
    """Return up to a hundred messages of a queue."""
    return store.read(topic, queue_id, 0, 100)


def own(stored):
    """Return the system properties of a message, except its unique id."""
    return {name: value for name, value in stored.properties.items() if name != "UNIQ_KEY"}


def tags_codes(store, topic, queue_id):
    """Return the tags codes of a queue's entries."""
    files = queue_files(store.path, topic, queue_id)
    entries = [entry for file in files for entry in parse_entries(file.read_bytes())]
    return [int(entry["tags_code"]) for entry in entries if entry["size"]]


def delayed_batch(rows, **columns):
    """Return a batch for queue 0 with these columns for delays."""
    kinds = {
        "delayLevel": pa.int32(),
        "delay": pa.string(),
        "deliverTimestamp": pa.timestamp("ms", "UTC"),
    }
    typed = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return batch(rows, 0, **typed)
