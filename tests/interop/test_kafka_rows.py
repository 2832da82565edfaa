"""A RocketMQ broker opens a topic of Kafka rows that pyrocket wrote, with null values and keys of
any bytes.
"""

import pyarrow as pa
from interop.compare import assert_same, bodies
from interop.rocketmq import SMALL, outgoing
from interop.stores_of_ours import SIZES
from pyrocket import Store
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pyrocket.options.payload import BASE64, EMPTY
from pyspark_pyrocket.sink.columns import plan_columns, send_batch

ROWS = [(b"k1", b"v1"), (b"k2", None), (b"\xff\x00", b"v3"), (b"a b", b"")]


def test_a_broker_returns_null_values_as_empty_bodies_with_their_marker(java, store_path):
    keys, values = zip(*ROWS, strict=True)
    rows = pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    )
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    sent = send_batch(rows, plan_columns(schema, "t"), null_body=EMPTY, key_encoding=BASE64)
    with Store.open(store_path, create=True, config=SIZES) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        store.append_batch(sent, topic="t")
    with java.broker(store_path, **SMALL) as broker:
        pulled = broker.pull([("t", 0)])
        assert bodies(pulled, "t")[0] == [b"v1", b"", b"v3", b""]
        marks = [one["properties"].get("pyrocketNull") for one in pulled["t", 0]["messages"]]
        assert marks == [None, "body", None, None]
        java.peer.send("t", [outgoing(b"after", queue=0)])
        pulled = broker.pull([("t", 0)])
        assert bodies(pulled, "t")[0][-1] == b"after"
    assert_same(store_path, pulled)
