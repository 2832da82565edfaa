"""A stream without repeated orders: Spark keeps the keys of the last ten minutes as its state."""
# ruff: noqa: T201

import tempfile

from client_arguments import given_server
from pyrocket import Message
from pyrocket.client import Producer
from pyspark.sql import DataFrame, SparkSession
from session import start_spark

ORDERS = [("o-1", b"3 apples"), ("o-2", b"1 pear"), ("o-1", b"3 apples")]
server = given_server()


def send() -> None:
    """Send orders; the producer got no answer for o-1, and sent it again with the same key."""
    with Producer(**server, create=True) as producer:
        for order, body in ORDERS:
            producer.send(Message(topic="shipments", body=body, keys=[order]))


def distinct_orders(spark: SparkSession) -> DataFrame:
    """Return the first message of each key, if repetitions are sent within ten minutes."""
    orders = spark.readStream.format("pyrocket").options(**server).option("subscribe", "shipments")
    orders = orders.option("startingOffsets", "earliest")
    rows = orders.schema("key STRING, body STRING, bornTimestamp TIMESTAMP").load()
    rows = rows.withWatermark("bornTimestamp", "10 minutes")
    return rows.dropDuplicatesWithinWatermark(["key"])


send()
# In a real job, the checkpoint is kept: it contains the offsets and the keys.
with tempfile.TemporaryDirectory() as checkpoint, start_spark("distinct orders") as spark:
    writer = distinct_orders(spark).writeStream.format("memory").queryName("distinct_orders")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()
    for row in spark.table("distinct_orders").orderBy("key").collect():
        print(f"{row.key}: {row.body}")
