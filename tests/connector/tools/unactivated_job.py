"""A new user's first program, run by an interpreter that is not on PATH."""
# ruff: noqa: T201

import os
import sys

import pyspark_pyrocket
from pyrocket.errors import UnsupportedError
from pyspark.sql import SparkSession


def main(store):
    chosen = pyspark_pyrocket.configure()
    print("python", chosen["PYSPARK_PYTHON"] == sys.executable == os.environ["PYSPARK_PYTHON"])
    print("again", pyspark_pyrocket.configure())
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = spark.config("spark.driver.host", "127.0.0.1").getOrCreate()
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("pyrocket").mode("append").option("topic", "t").save(store)
    print("rows", spark.read.format("pyrocket").option("topic", "t").load(store).count())
    print("worker", spark.sparkContext.range(1).map(lambda _: in_worker()).collect())
    spark.stop()
    del os.environ["PYSPARK_PYTHON"]
    try:
        pyspark_pyrocket.configure()
    except UnsupportedError as error:
        print("late", error)


def in_worker():
    """Call `configure` in a task, as a module does that calls `configure` when it is imported."""
    os.environ.pop("PYSPARK_PYTHON", None)
    return pyspark_pyrocket.configure()


if __name__ == "__main__":
    main(sys.argv[1])
