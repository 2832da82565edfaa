"""Stores that pyrocket writes, to be opened by RocketMQ."""

import numpy as np
import pyarrow as pa
from interop.workload import DELAYED, HALF, OPS
from pyrocket import Message, Store, StoreConfig
from pyrocket.base.clock import system_clock
from pyrocket.formats.hashes import java_hash
from pyrocket.values.admin import TopicConfig
from support.inner import inner
from support.stores import append_as_broker

SIZES = StoreConfig(
    log_file_bytes=64 * 1024, queue_file_entries=30, index_slots=100, index_items=400
)
"""The same sizes as `rocketmq.SMALL`."""

GROUP = "readers"
COMMITTED = {0: 5, 1: 7}


def written(path, config=SIZES, rounds=3):
    """Return an open store with several topics and queues, keys, deflated bodies, and a batch over
    several log files.
    """
    store = Store.open(path, create=True, config=config)
    store.topics.create("orders", read_queues=2, write_queues=2)
    store.topics.create("wide", read_queues=1, write_queues=1)
    for n in range(40 * rounds):
        store.append(
            Message(
                topic=("orders", "events")[n % 3 == 2],
                body=b"one%d " % n * (1 + n % 200),
                tags=("blue", "grün", None)[n % 3],
                keys=[f"key{n}", f"tens{n // 10}"],
                properties={"größe": "übergroß 中文"},
                flag=n,
            )
        )
    store.append(Message(topic="orders", body=b"packed " * 2000, keys=["packed"]))
    store.append_batch(over_several_files(), topic="wide")
    store.groups.commit(GROUP, "orders", COMMITTED)
    return store


def over_several_files(count=80, size=3000):
    """Return rows with random bodies that fill almost four log files of 64 KiB."""
    rng = np.random.default_rng(7)
    bodies = [b"wide%d " % n + rng.bytes(size) for n in range(count)]
    keys = pa.array([[f"wide{n}"] for n in range(count)], pa.list_(pa.string()))
    return pa.record_batch({"body": pa.array(bodies, pa.binary()), "keys": keys})


def name_system_topics(store):
    """Add the topics that only a broker adds to the table, so that RocketMQ's client may pull from
    them.
    """
    with inner(store).writer.exclusive():
        for name, queues in ((DELAYED, 18), (HALF, 1), (OPS, 1)):
            inner(store).reader.topics.put(TopicConfig(name, queues, queues))


def append_record(store, topic, properties, body, tags_code):
    """Append to queue 0 of a system topic, as only a broker does."""
    append_as_broker(store, topic, properties, tags_code, body=body, born=system_clock())


def append_delayed(store, body=b"late", topic="orders"):
    """Append a message with delay level 1, a second, to the topic of `ScheduleMessageService`."""
    own = {"REAL_TOPIC": topic, "REAL_QID": "1", "DELAY": "1", "TAGS": "L", "UNIQ_KEY": "A" * 32}
    append_record(store, DELAYED, own, body, system_clock() + 1000)


def append_half(store, body=b"half", topic="orders"):
    """Append an undecided message of a transaction to the topic of `TransactionalMessageBridge`."""
    own = {"REAL_TOPIC": topic, "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "payers"}
    append_record(store, HALF, own | {"TAGS": "P", "UNIQ_KEY": "B" * 32}, body, java_hash("P"))
