"""A job through Spark Connect: batch write and read, SQL views and a streaming copy.

Usage: connect_job.py STORE CHECKPOINT
"""

import sys

import pytest
from pyrocket.errors import UnsupportedError
from pyspark.sql import SparkSession
from pyspark_pyrocket import configure, display_stream

ROWS = 60
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.ui.enabled": "false",
}


def main(store, checkpoint):
    configure()
    builder = SparkSession.builder.remote("local[1]")
    for setting in SETTINGS.items():
        builder = builder.config(*setting)
    with builder.getOrCreate() as spark:
        assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
        rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS body", "'k' AS key")
        rows.write.format("pyrocket").mode("append").options(path=store, topic="first").save()
        insert_and_select(spark, store)
        copy(spark, store, checkpoint)
        read = spark.read.format("pyrocket").options(path=store, topic="second")
        found = read.schema("body STRING").load().collect()
        assert sorted(int(row.body) for row in found) == list(range(ROWS + 1)), found


def insert_and_select(spark, store):
    """Insert one row, only by SQL."""
    options = f"USING pyrocket OPTIONS (path '{store}', topic 'first'"
    spark.sql(f"CREATE TEMPORARY VIEW inbox {options}, valueFormat 'string')")
    spark.sql(f"CREATE TEMPORARY VIEW outbox (body STRING) {options})")
    spark.sql(f"INSERT INTO outbox VALUES ('{ROWS}')")
    assert spark.sql("SELECT count(*), max(int(body)) FROM inbox").first() == (ROWS + 1, ROWS)


def copy(spark, store, checkpoint):
    """Copy a topic to another until everything is copied."""
    where = {"path": store, "topic": "first", "startingOffsets": "earliest"}
    stream = spark.readStream.format("pyrocket").options(**where).schema("body STRING").load()
    refuse_a_screen(stream)
    write = stream.writeStream.format("pyrocket").trigger(availableNow=True)
    write = write.options(path=store, topic="second", checkpointLocation=checkpoint)
    write.start().awaitTermination()


def refuse_a_screen(stream):
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_CONNECT"):
        display_stream(stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
