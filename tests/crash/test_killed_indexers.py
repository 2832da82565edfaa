"""Writers with a key index are killed at random: the index has the bytes that RocketMQ would
write.
"""

import random
import time

import pytest
from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.formats.index_file import Geometry
from pyrocket.index.keys.key_index import KeyIndex
from support.forked import Forked, run_code
from support.java_index import JavaIndex
from support.stores import SMALL

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quick_disk")]

APPEND = """
import sys
import pyarrow as pa
from pyrocket import Store
from support.keyed import limit_index

store = Store.open(sys.argv[1])
limit_index(store, catch_up_bytes=2000, slice_bytes=1)
keys = [["k", f"{sys.argv[2]}.{at % 7}"] for at in range(30)]
queues = pa.array([0] * 30, pa.int32())
batch = pa.record_batch({"body": [b"x" * 20] * 30, "keys": keys, "queueId": queues})
for _ in range(100_000):
    store.append_batch(batch, topic="t")
"""
KILLS = 2


def test_the_index_equals_that_of_rocketmq_after_any_number_of_kills(path):
    rng = random.Random(7)
    for number in range(KILLS):
        writers = [Forked(run_code, APPEND, str(path), str(number)) for _ in range(2)]
        grow(path)
        time.sleep(rng.random() * 0.05)
        for writer in writers:
            writer.kill()
            writer.communicate()
    with Store.open(path) as store:
        store.topics.create("other")  # Completes the index after the killed writers.
        messages = store.read("t", 0, 0, 10**7)
        assert len(store.lookup.query("t", "k", max_messages=10**7)) == len(messages)
    index = KeyIndex(Layout(path), Geometry(SMALL.index_slots, SMALL.index_items))
    java = JavaIndex(SMALL.index_slots, SMALL.index_items)
    for one in messages:
        java.build("t", one.physical_offset, one.store_timestamp, [one.msg_id, *one.keys])
    assert [index.path(name).read_bytes() for name in index.names()] == java.contents()
    assert len(index.names()) > 3


def grow(path):
    """Wait until a process has indexed a key."""
    index = KeyIndex(Layout(path), Geometry(SMALL.index_slots, SMALL.index_items))
    before, deadline = len(index.names()), time.monotonic() + 60
    while len(index.names()) < before + 2:
        assert time.monotonic() < deadline
        time.sleep(0.001)
