"""Checksums over complete records: RocketMQ 5 accepts pyrocket's checksums in a recovery, and
pyrocket accepts RocketMQ's.
"""

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from interop.compare import assert_same, bodies
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES, written
from pyrocket import Store
from pyrocket.tools.verify.verify import verify
from support.halves import log_records
from support.stores import batch, log_files, overwrite, reboot

STRICT = SMALL | {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
"""A broker that rejects records with a missing or wrong checksum in recovery."""


@pytest.fixture
def java5(java):
    if not java.is_5:
        pytest.skip("RocketMQ 4 does not support checksums over complete records")
    return java


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "unclean"])
def test_a_strict_broker_accepts_pyrockets_records_and_pyrocket_accepts_a_brokers(
    java5, store_path, clean
):
    written(store_path, replace(SIZES, property_crc=True)).close(clean=clean)
    with java5.broker(store_path, **STRICT) as broker:
        assert_same(store_path, broker.pull())
        java5.peer.send("orders", [outgoing(b"java%d" % n, tags="J") for n in range(20)])
        pulled = broker.pull()
        broker.stop()
    assert_same(store_path, pulled)
    sealed = [b"__CRC32#\x01" in record.properties[-20:] for record in log_records(store_path)]
    assert all(sealed)
    assert verify(store_path).ok
    with Store.open(store_path) as store:
        store.append_batch(batch([b"more"], 0), topic="wide")
    assert verify(store_path).ok


def test_a_broker_and_pyrocket_truncate_a_log_at_the_same_record(java5, store_path):
    """A property is changed after the last checkpoint: its record and all later records are
    truncated.
    """
    with Store.open(store_path, create=True, config=replace(SIZES, property_crc=True)) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(batch([b"one", b"two"], 0, tags=pa.array(["good", "bad!"])), topic="t")
        store.close(clean=False)
    (file,) = log_files(store_path)
    overwrite(file, b"B", file.read_bytes().index(b"bad!"))
    shutil.copytree(store_path, copy := store_path.with_name("copy"))
    with java5.broker(copy, **STRICT) as broker:
        assert bodies(broker.pull([("t", 0)]), "t")[0] == [b"one"]
    reboot(store_path)
    with Store.open(store_path) as store:
        assert [message.body for message in store.read("t", 0, 0)] == [b"one"]
