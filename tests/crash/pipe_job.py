"""A streaming query from a topic to another, in a process of its own so that it can be killed.

Usage: pipe_job.py STORE CHECKPOINT until-failure|forever

`until-failure` ends with the query, `forever` starts it again.
Messages are `key:number`; the sink gets them with the key as their sharding key.
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
