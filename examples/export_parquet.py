"""Export a topic to Parquet: a job for spark-submit.

spark-submit examples/export_parquet.py --path STORE --topic TOPIC --output FOLDER
"""

import argparse
import sys

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

COLUMNS = "queueId INT, queueOffset BIGINT, key STRING, tags STRING, storeTimestamp TIMESTAMP"


def export(spark: SparkSession, path: str, topic: str, output: str, columns: str) -> int:
    """Write all messages that the topic has now; return how many."""
    counted = Observation()
    messages = spark.read.format("pyrocket").option("topic", topic).schema(columns).load(path)
    messages.observe(counted, F.count(F.lit(1)).alias("rows")).write.parquet(output)
    return int(counted.get["rows"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="export_parquet.py", description="Topic to Parquet.")
    parser.add_argument("--path", required=True, help="the store's directory")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True, help="a folder that does not exist yet")
    parser.add_argument("--columns", default=f"{COLUMNS}, body STRING", help="as in SQL")
    wanted = parser.parse_args()
    spark = SparkSession.builder.appName(f"export of {wanted.topic}").getOrCreate()
    rows = export(spark, wanted.path, wanted.topic, wanted.output, wanted.columns)
    sys.stdout.write(f"{rows} messages of {wanted.topic} are in {wanted.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
