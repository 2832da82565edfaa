"""Writes in a cluster of two executors, in which tasks fail, are slow, or lose their executor.

Usage: cluster_job.py MASTER STORE FOLDER

FOLDER gets a file for each attempt of a task.
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
from pyspark_pyrocket.java import use_java

ROWS, TASKS = 4_000, 4
BODY_BYTES = 3_000
"""So that Spark does not keep the rows before a mishap to itself."""


def fail(first_time):
    """The first attempt fails; the sink has had the time to do something with its first rows."""
    if first_time:
        time.sleep(1)
        raise RuntimeError("this attempt fails")


def dawdle(first_time):
    """The first attempt is so slow that another one is begun beside it."""
    if first_time:
        time.sleep(20)


def lose_executor(first_time):
    """The first attempt takes its executor down, and with it what its stage had read."""
    if first_time:
        time.sleep(1)
        parents = psutil.Process().parents()
        os.kill(next(each.pid for each in parents if each.name() == "java"), signal.SIGKILL)
        time.sleep(60)


def main(master, store, folder):
    use_java()
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
    for topic, mishap in {"failed": fail, "slow": dawdle, "lost": lose_executor}.items():
        frame = spark.range(0, ROWS, 1, TASKS)
        if mishap is lose_executor:
            # A shuffle: its files go with the executor, so the stage before has to run again.
            frame = frame.repartition(TASKS, "id")
        writer = frame.mapInArrow(with_mishap(mishap, Path(folder), topic), "body STRING").write
        writer.format("pyrocket").mode("append").options(path=store, topic=topic).save()


def with_mishap(mishap, folder, topic):
    """Return what turns ids into bodies, with a mishap in the middle of partition 1."""

    def run(batches):
        context = TaskContext.get()
        partition = context.partitionId()
        first_time = not list(folder.glob(f"{topic}.{partition}.*"))
        (folder / f"{topic}.{partition}.{context.taskAttemptId()}").touch()
        for number, batch in enumerate(batches):
            if partition == 1 and number == 5:
                mishap(first_time)
            ids = batch.column(0).cast("string")
            yield batch.set_column(0, "body", pc.utf8_rpad(ids, BODY_BYTES, "."))

    return run


if __name__ == "__main__":
    main(*sys.argv[1:])
