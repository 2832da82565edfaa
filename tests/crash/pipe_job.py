"""A streaming query from one topic to another, in its own process so that it can be killed.

Usage: pipe_job.py STORE CHECKPOINT until-failure|forever

With `until-failure` the job ends when the query fails, with `forever` the query is started again.
Bodies are `key:number`; the key is the sharding key of the forwarded message.
"""

import sys
import traceback

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark_pyrocket import configure

SOURCE, TARGET = "in", "out"
ROWS_PER_BATCH = 150


def start(spark, store, checkpoint):
    messages = (
        spark.readStream.format("pyrocket")
        .options(path=store, topic=SOURCE, startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=ROWS_PER_BATCH, coalesceQueues="false")
        .schema("body STRING")
        .load()
    )
    return (
        messages.selectExpr("upper(body) AS body", "split(body, ':')[0] AS shardingKey")
        .writeStream.format("pyrocket")
        .options(path=store, topic=TARGET, checkpointLocation=checkpoint)
        .start()
    )


def main(store, checkpoint, mode):
    configure()
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config(
            "spark.sql.streaming.checkpointFileManagerClass",
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager",
        )
        .getOrCreate()
    )
    while True:
        try:
            start(spark, store, checkpoint).awaitTermination()
        except StreamingQueryException:
            traceback.print_exc()
        if mode == "until-failure":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
