"""A stream from topic to topic: urgent messages are forwarded with their tags and keys."""
# ruff: noqa: T201

import tempfile

from pyspark.sql import SparkSession
from session import start_spark


def publish(spark: SparkSession, store: str) -> None:
    rows = [("pump 3 is hot", "urgent", "pump-3"), ("all is well", "routine", "pump-1")]
    frame = spark.createDataFrame(rows, "body STRING, tags STRING, shardingKey STRING")
    frame.write.format("pyrocket").mode("append").option("topic", "alarms").save(store)


def pipe(spark: SparkSession, store: str) -> None:
    alarms = spark.readStream.format("pyrocket").option("subscribe", "alarms")
    urgent = alarms.option("startingOffsets", "earliest").load(store).where("tags = 'urgent'")
    # The sink accepts the source's columns; the option `topic` is the target of all rows.
    writer = urgent.writeStream.format("pyrocket").option("topic", "pager")
    writer = writer.option("checkpointLocation", f"{store}.checkpoint")
    writer.trigger(availableNow=True).start(store).awaitTermination()


with tempfile.TemporaryDirectory() as folder, start_spark("pipe") as spark:
    store = f"{folder}/store"
    publish(spark, store)
    pipe(spark, store)
    pager = (
        spark.read.format("pyrocket").option("topic", "pager").schema("tags STRING, body STRING")
    )
    for row in pager.load(store).collect():
        print(f"{row.tags}: {row.body}")
