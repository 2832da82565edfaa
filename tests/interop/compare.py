"""Compares the messages that RocketMQ's client pulled with the messages that pyrocket reads."""

import base64
from itertools import chain

import pyarrow as pa
from pyrocket import SCAN_COLUMNS, Store

FIELDS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "flag", "sys_flag"),
    *("msg_id", "born_timestamp", "store_timestamp", "born_host", "store_host"),
    *("reconsume_times", "prepared_transaction_offset"),
)

COMPRESSED = 0x1
"""A bit of sysFlag; the client of 5.x clears it when it inflates a body."""


def of_java(shown):
    """Return a message of Peer's output, with the names of pyrocket's fields."""
    camel = {
        name: name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])) for name in FIELDS
    }
    found = {name: shown[key] for name, key in camel.items()}
    for host in ("born_host", "store_host"):
        found[host] = found[host].lstrip("/")
    found["sys_flag"] &= ~COMPRESSED
    return found | {"body": base64.b64decode(shown["body"]), "properties": shown["properties"]}


def of_ours(message):
    found = {name: getattr(message, name) for name in FIELDS}
    found["sys_flag"] &= ~COMPRESSED
    return found | {"body": message.body, "properties": dict(message.properties)}


def bodies(pulled, topic):
    """Return the pulled bodies of a topic, by queue."""
    return {
        queue_id: [base64.b64decode(one["body"]) for one in found["messages"]]
        for (name, queue_id), found in sorted(pulled.items())
        if name == topic
    }


def all_bodies(pulled, topic):
    return list(chain.from_iterable(bodies(pulled, topic).values()))


def read_all(path, queues):
    """Read all messages of the queues with `Store.read`, in the form that `Broker.pull` returns."""
    with Store.open(path, read_only=True) as store:
        return {name: read_queue(store, *name) for name in queues}


def read_queue(store, topic, queue_id):
    known = store.offsets(topic)[queue_id]
    messages = store.read(topic, queue_id, known.minimum, known.maximum - known.minimum)
    assert len(messages) == known.maximum - known.minimum
    check_scan(store, topic, queue_id, known, messages)
    return {
        "min": known.minimum,
        "max": known.maximum,
        "messages": [of_ours(message) for message in messages],
    }


def check_scan(store, topic, queue_id, known, messages):
    """Check that scans return the same messages as `Store.read`."""
    names = [
        *("queueOffset", "body", "tags", "msgId", "storeTimestamp", "properties", "storeHost"),
    ]
    columns = [name for name in names if name in SCAN_COLUMNS]
    assert len(columns) >= 5
    batches = list(
        store.scan(topic, queue_id, known.minimum, known.maximum, columns, verify_crc=True)
    )
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert len(rows) == len(messages)
    for row, message in zip(rows, messages, strict=True):
        assert (row["queueOffset"], row["body"]) == (message.queue_offset, message.body)
        assert (row["tags"], row["msgId"]) == (message.tags, message.msg_id)


def assert_same(path, pulled):
    """Check that pyrocket reads exactly the messages that RocketMQ's client pulled."""
    ours = read_all(path, pulled)
    assert ours.keys() == pulled.keys()
    for name, java in pulled.items():
        expected = [of_java(shown) for shown in java["messages"]]
        for mine, theirs in zip(ours[name]["messages"], expected, strict=False):
            unlike = {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]}
            assert not unlike, (
                f"{name} at {mine['queue_offset']}, pyrocket's and RocketMQ's: {unlike}"
            )
        assert len(ours[name]["messages"]) == len(expected), name
        assert (ours[name]["min"], ours[name]["max"]) == (java["min"], java["max"]), name
