"""A job as users submit it: batch write, streaming copy and batch read, all exactly-once.

Usage: deployed_job.py STORE CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession

ROWS, TASKS = 2_000, 4


def main(store, checkpoint):
    spark = SparkSession.builder.appName("deployed").getOrCreate()
    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("CAST(id AS STRING) AS body", "id % 7 AS n")
    rows = rows.selectExpr("body", "CAST(n AS STRING) AS key")
    rows.write.format("pyrocket").mode("append").options(path=store, topic="first").save()
    stream = spark.readStream.format("pyrocket").options(
        path=store, subscribe="first", startingOffsets="earliest", maxOffsetsPerTrigger=700
    )
    query = (
        stream.schema("key STRING, body STRING")
        .load()
        .writeStream.format("pyrocket")
        .options(path=store, topic="second", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = spark.read.format("pyrocket").options(path=store, topic="second")
    found = read.schema("body STRING").load().selectExpr("CAST(body AS INT) AS n").collect()
    assert sorted(row.n for row in found) == list(range(ROWS)), len(found)
    hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    sys.stdout.write(f"copied {len(found)} rows with {hosts} executors\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
