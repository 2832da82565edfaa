"""A streaming query from a topic to Parquet, in its own process so that it can be killed.

Usage: streaming_job.py path|namesrv VALUE TOPIC FOLDER once|forever
"""

import sys

from pyspark.sql import SparkSession
from pyspark_pyrocket import configure


def main(target, value, topic, folder, mode):
    configure()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    messages = (
        spark.readStream.format("pyrocket")
        .option(target, value)
        .options(topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=500)
        .schema("queueId INT, queueOffset BIGINT, body STRING")
        .load()
    )
    trigger = {"availableNow": True} if mode == "once" else {"processingTime": "0 seconds"}
    query = (
        messages.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(**trigger)
        .start(f"{folder}/out")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
