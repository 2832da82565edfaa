"""Two streaming jobs that read the topic of flights, each in several bounded micro-batches."""

from dataclasses import dataclass
from pathlib import Path

from flights_source import FLIGHT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

COUNTS = "flights_per_day"
"""The table that receives the windowed count."""


@dataclass(frozen=True)
class Jobs:
    """The two jobs. `folder` contains the store and the jobs' results."""

    spark: SparkSession
    folder: Path
    topic: str
    rows_per_batch: int

    def count_by_day(self) -> StreamingQuery:
        """Count the flights of each carrier in windows of a day of event time.

        Complete mode keeps every window, so every row is counted, regardless of the order of rows.
        """
        day = F.window("time_hour", "1 day").alias("day")
        counts = self._flights().groupBy(day, "carrier").count()
        writer = counts.writeStream.format("memory").queryName(COUNTS).outputMode("complete")
        writer = writer.option("checkpointLocation", str(self.folder / "count-checkpoint"))
        return writer.trigger(availableNow=True).start()

    def write_parquet(self) -> StreamingQuery:
        """Turn the JSON into columns and write them as Parquet, each row exactly once."""
        writer = self._flights().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / "parquet-checkpoint"))
        return writer.trigger(availableNow=True).start(str(self.folder / "stream.parquet"))

    def _flights(self) -> DataFrame:
        """Return the topic as a stream of flights, starting at its first message."""
        messages = (
            self.spark.readStream.format("pyrocket")
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.rows_per_batch)
            .schema("body STRING")
            .load(str(self.folder / "store"))
        )
        return messages.select(F.from_json("body", FLIGHT).alias("flight")).select("flight.*")


def rows_read(query: StreamingQuery) -> int:
    """Return the number of rows of the query's completed micro-batches."""
    return sum(progress.numInputRows for progress in query.recentProgress)


def counts_by_carrier(spark: SparkSession) -> dict[str, int]:
    """Return the windowed counts, added up for each carrier."""
    counts = spark.table(COUNTS).groupBy("carrier").agg(F.sum("count").alias("flights"))
    return {row["carrier"]: row["flights"] for row in counts.collect()}
