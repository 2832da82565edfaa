"""Writes in a cluster of two executors whose tasks fail, are slow, or lose their executor.

Usage: cluster_job.py MASTER STORE FOLDER batches|stream

Each attempt of a task creates a file in FOLDER. `batches` runs three separate writes. `stream` runs
a query from the topic `source` to `streamed`, with a fault in each of its first three
micro-batches.
"""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark_pyrocket import configure

ROWS, TASKS = 4_000, 4
STREAMED, KEYS = 2_400, 16
BODY_BYTES = 3_000
"""A length with which Spark passes the rows before a fault on to the sink."""


def fail(first_time):
    """Fail the first attempt after the sink has processed its first rows."""
    if first_time:
        time.sleep(1)
        raise RuntimeError("this attempt fails")


def dawdle(first_time):
    """Delay the first attempt so long that Spark starts a speculative one."""
    if first_time:
        time.sleep(20)


def lose_executor(first_time):
    """Kill the executor of the first attempt, so that its shuffle files are lost."""
    if first_time:
        time.sleep(1)
        parents = psutil.Process().parents()
        os.kill(next(each.pid for each in parents if each.name() == "java"), signal.SIGKILL)
        time.sleep(60)


MISHAPS = {"failed": fail, "slow": dawdle, "lost": lose_executor}


def main(master, store, folder, kind):
    configure()
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.executor.memory", "512m")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1")
        .config("spark.sql.shuffle.partitions", TASKS)
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
        .getOrCreate()
    )
    (write_batches if kind == "batches" else write_stream)(spark, store, Path(folder))


def write_batches(spark, store, folder):
    for topic, mishap in MISHAPS.items():
        frame = spark.range(0, ROWS, 1, TASKS)
        if mishap is lose_executor:
            # A shuffle: its files are lost with the executor, so its stage has to run again.
            frame = frame.repartition(TASKS, "id")
        writer = frame.mapInArrow(with_mishap(mishap, folder, topic), "body STRING").write
        writer.format("pyrocket").mode("append").options(path=store, topic=topic).save()


def write_stream(spark, store, folder):
    messages = (
        spark.readStream.format("pyrocket")
        .options(path=store, topic="source", startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=STREAMED // len(MISHAPS))
        .schema("body STRING")
        .load()
    )
    # All rows of a key come from one queue, and a shuffle keeps their order.
    keyed = messages.selectExpr("body", "split(body, ':')[0] AS shardingKey").repartition(
        TASKS, "shardingKey"
    )
    query = (
        keyed.mapInArrow(with_mishap_of_batch(folder), "body STRING, shardingKey STRING")
        .writeStream.format("pyrocket")
        .options(path=store, topic="streamed", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def begin_attempt(folder, name):
    """Record this attempt of a task; return whether it is the first, and the partition id."""
    context = TaskContext.get()
    partition = context.partitionId()
    first_time = not list(folder.glob(f"{name}.{partition}.*"))
    (folder / f"{name}.{partition}.{context.taskAttemptId()}").touch()
    return first_time, partition


def with_mishap_of_batch(folder):
    """Return a function that passes rows on, with a fault in partition 1 of each batch."""

    def run(batches):
        batch_id = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        name = list(MISHAPS)[batch_id]
        first_time, partition = begin_attempt(folder, name)
        for number, batch in enumerate(batches):
            if partition == 1 and number == 1:
                MISHAPS[name](first_time)
            yield batch

    return run


def with_mishap(mishap, folder, topic):
    """Return a function that converts ids to bodies, with a fault in the middle of partition 1."""

    def run(batches):
        first_time, partition = begin_attempt(folder, topic)
        for number, batch in enumerate(batches):
            if partition == 1 and number == 5:
                mishap(first_time)
            ids = batch.column(0).cast("string")
            yield batch.set_column(0, "body", pc.utf8_rpad(ids, BODY_BYTES, "."))

    return run


if __name__ == "__main__":
    main(*sys.argv[1:])
