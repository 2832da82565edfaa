"""A job migrated from Kafka: only the format and the options have changed."""
# ruff: noqa: T201

import tempfile

from pyspark.sql import DataFrame, SparkSession
from session import start_spark


def publish(spark: SparkSession, store: str) -> None:
    rows = [("ann", "3 apples"), ("eve", "1 pear"), ("ann", "2 plums")]
    frame = spark.createDataFrame(rows, "key STRING, value STRING")
    # Was: .format("kafka").option("kafka.bootstrap.servers", "localhost:9092")
    writer = frame.write.format("pyrocket").option("path", store).mode("append")
    writer.option("topic", "orders").save()


def count_by_customer(spark: SparkSession, store: str) -> DataFrame:
    # Was: .format("kafka").option("kafka.bootstrap.servers", "localhost:9092")
    reader = spark.readStream.format("pyrocket").option("path", store)
    reader = reader.option("schemaMode", "kafka").option("subscribe", "orders")
    orders = reader.option("startingOffsets", "earliest").load()
    return orders.selectExpr("CAST(key AS STRING) AS customer", "value").groupBy("customer").count()


with tempfile.TemporaryDirectory() as folder, start_spark("kafka job") as spark:
    publish(spark, f"{folder}/store")
    counts = count_by_customer(spark, f"{folder}/store").writeStream.outputMode("complete")
    counts = counts.option("checkpointLocation", f"{folder}/checkpoint")
    query = counts.format("memory").queryName("orders_by_customer").trigger(availableNow=True)
    query.start().awaitTermination()
    for row in spark.table("orders_by_customer").orderBy("customer").collect():
        print(f"{row.customer}: {row['count']}")
