"""A Spark job that reads, streams and writes over `endpoint`, without access to the store's files.

Usage: endpoint_job.py STORE ADDRESS CHECKPOINT. Hides the directory STORE by mounting an empty
folder over it.
"""

import os
import subprocess
import sys

from pyspark.sql import SparkSession

ROWS = 600


def hide(directory):
    """Mount an empty folder over the directory, for this process and its children."""
    subprocess.run(["mount", "-t", "tmpfs", "none", directory], check=True)


def main(store, address, checkpoint):
    hide(store)
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    seen = spark.sparkContext.parallelize([store], 1).map(os.listdir).collect()
    assert seen == [[]], "the executors see the files"
    target = {"endpoint": address}
    rows = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("pyrocket").mode("append").options(**target, topic="first").save()
    stream = spark.readStream.format("pyrocket").schema("body STRING")
    stream = stream.options(**target, topic="first", startingOffsets="earliest")
    query = (
        stream.option("maxOffsetsPerTrigger", 200)
        .load()
        .writeStream.format("pyrocket")
        .options(**target, topic="second", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = spark.read.format("pyrocket").options(**target, topic="second").schema("body STRING")
    found = sorted(int(row.body) for row in read.load().collect())
    assert found == list(range(ROWS)), len(found)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
