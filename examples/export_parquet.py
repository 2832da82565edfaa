"""Export the new messages of a topic to Parquet, partitioned by day: for spark-submit and cron.

spark-submit examples/export_parquet.py --path STORE --topic TOPIC --output FOLDER

A consumer group records the progress; the next run exports the messages stored since then. Each
message is exported exactly once, also after a crash: rows are written to a hidden folder, their
files are moved, and then the group's offsets are committed (export_steps.py). If another run is
active, a run exits at once. To export messages again, reset the group: the next run starts at the
new offsets and adds files.
"""

import argparse
import sys

import pyspark_pyrocket
from console import with_bar_of_tasks
from export_steps import Export, Plan, UnfitOutputError, try_lock
from pyrocket import PyrocketError, Store
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

COLUMNS = "queueId INT, queueOffset BIGINT, key STRING, tags STRING, storeTimestamp TIMESTAMP"
TIMES = ("storeTimestamp", "bornTimestamp")


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if everything is exported or another run is active, 2 on an error."""
    wanted = _parse(arguments)
    try:
        with Store.open(wanted.path, read_only=wanted.dry_run) as store:
            return _export(store, wanted)
    except (PyrocketError, UnfitOutputError) as error:
        _say(f"{error}")
        return 2


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="export_parquet.py", description="Topic to Parquet.")
    parser.add_argument("--path", required=True, help="the store's directory")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True, help="a folder on this machine")
    parser.add_argument(
        "--group",
        default="export-parquet",
        help="a consumer group; use another one for each output of a topic",
    )
    parser.add_argument(
        "--columns", default=f"{COLUMNS}, body STRING", help="names and types, as in SQL"
    )
    parser.add_argument(
        "--date", default=TIMES[0], help=f"{', '.join(TIMES)} or a path in the JSON body: $.day"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be exported")
    return parser.parse_args(arguments)


def _export(store: Store, wanted: argparse.Namespace) -> int:
    export = Export(store, wanted.topic, wanted.group, wanted.output)
    if wanted.dry_run:
        _print_plan(export.unfinished() or export.plan(), wanted)
        return 0
    with try_lock(wanted.output) as locked:
        if not locked:
            _say(f"Another run exports to {wanted.output}: nothing is done.")
            return 0
        _finish_and_export(export, wanted)
    return 0


def _finish_and_export(export: Export, wanted: argparse.Namespace) -> None:
    """Finish an interrupted run, then export the new messages."""
    begun = export.unfinished()
    if begun is not None:
        export.finish(begun)
        _say(f"{begun.count:,} messages of an interrupted run are now in {wanted.output}")
    plan = export.plan()
    if plan.count:
        pyspark_pyrocket.configure()
        spark = SparkSession.builder.appName(f"export of {wanted.topic}").getOrCreate()
        writer = _messages(spark, plan, wanted).write.partitionBy("date")
        with_bar_of_tasks(spark, "export", lambda: writer.parquet(export.prepare_rows(plan)))
        export.complete(plan)
        export.finish(plan)
    _say(f"{plan.count:,} new messages of {wanted.topic} are in {wanted.output}")


def _messages(spark: SparkSession, plan: Plan, wanted: argparse.Namespace) -> DataFrame:
    """Return the planned messages, with the day of each."""
    asked = _names(wanted.columns)
    source, kind = (wanted.date, "TIMESTAMP") if wanted.date in TIMES else ("body", "STRING")
    columns = wanted.columns if source in asked else f"{wanted.columns}, {source} {kind}"
    options = {"topic": plan.topic, "startingOffsets": plan.starts, "endingOffsets": plan.ends}
    messages = spark.read.format("pyrocket").options(**options).schema(columns).load(wanted.path)
    if kind == "STRING":
        day = F.try_to_timestamp(F.get_json_object(source, wanted.date)).cast("date")
    else:
        day = F.to_date(source)
    return messages.select(*asked, day.alias("date"))


def _names(columns: str) -> list[str]:
    """Return the names of the columns; Spark parses them, because types may contain commas."""
    schema = StructType.fromDDL(columns)
    if not isinstance(schema, StructType):
        raise UnfitOutputError(f"--columns is {columns!r}: it needs a name before each type.")
    return schema.fieldNames()


def _print_plan(plan: Plan, wanted: argparse.Namespace) -> None:
    for queue_id, (start, end) in plan.ranges.items():
        _say(f"queue {queue_id}: {end - start:,} messages, {start} to {end}")
    _say(f"{plan.count:,} messages of {wanted.topic} would go to {wanted.output}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
