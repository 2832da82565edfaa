"""A query over `endpoint` with four tasks per micro-batch.

Usage: endpoint_workers_job.py ADDRESS CHECKPOINT RESULT. Writes the ages of Spark's workers to
RESULT.
"""

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def workers():
    """Return the ages in seconds of the Python workers of this job."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,etimes=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
    parents = {pid: parent for pid, parent, _, _ in rows}
    daemons = {pid for pid, _, _, args in rows if "pyspark.daemon" in args}
    return [
        int(age)
        for pid, parent, age, _ in rows
        if pid in daemons and parent in daemons and _descends(pid, parents)
    ]


def _descends(pid, parents):
    while pid in parents and pid != str(os.getpid()):
        pid = parents[pid]
    return pid == str(os.getpid())


def main(address, checkpoint, result):
    spark = SparkSession.builder.master("local[4]").getOrCreate()
    target = {"endpoint": address}
    source = spark.readStream.format("pyrocket").schema("body STRING")
    query = (
        source.options(**target, topic="t", startingOffsets="earliest", maxOffsetsPerTrigger=40)
        .option("coalesceQueues", "false")
        .load()
        .writeStream.format("pyrocket")
        .options(**target, topic="copy", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    Path(result).write_text(" ".join(map(str, workers())))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
