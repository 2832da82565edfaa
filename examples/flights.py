"""The main job: sends a year of flights through a topic, and compares the results with the source.

DataFrame → topic → two streaming queries, and an export with spark-submit → do all sums agree?
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from console import Done, Steps, tasks_done
from flights_check import count_differences, differences, flights_of, table_of
from flights_source import load_flights, to_messages
from flights_stream import Jobs, counts_by_carrier, rows_read
from pyarrow import parquet
from pyrocket import Store
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from session import describe, spark_submit, start_spark

TOPIC = "flights"
MICRO_BATCHES = 6
STEPS = 7
TASKS = 8
"""Tasks of the write: more tasks than cores, so that the progress bar moves."""


def main(arguments: list[str] | None = None) -> int:
    """Run every step; return 1 if anything differs from the source."""
    wanted = _parse(arguments)
    with _folder(wanted) as folder:
        return _run(wanted, folder)


def _run(wanted: argparse.Namespace, folder: Path) -> int:
    started = time.monotonic()
    steps = Steps(STEPS)
    source = steps.run("load the flights", lambda: load_flights(wanted.rows))
    with steps.run("start Spark", lambda: start_spark("flights")) as spark:
        steps.say(describe(spark))
        _publish(steps, spark, source, folder / "store")
        counts = _stream(steps, spark, folder, len(source))
        read = partial(_read_topic, spark, folder / "store")
        topic = steps.run("batch: read the topic", read, partial(tasks_done, spark))
    _export(steps, folder)
    steps.console.print(table_of(source, topic, counts))
    steps.say(f"{time.monotonic() - started:.0f} s in total; {_fate(wanted, folder)}")
    return _conclude(steps, [*count_differences(source, counts), *_compare(source, topic, folder)])


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 examples", description=__doc__)
    parser.add_argument("--rows", type=int, help="only this many flights (default: all 336,776)")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    parser.add_argument("--path", type=Path, help="a new folder for the files, which are kept")
    return parser.parse_args(arguments)


@contextmanager
def _folder(wanted: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder for all files; a temporary one is removed afterwards unless `keep`."""
    path: Path | None = wanted.path
    if path is None:
        temporary = Path(tempfile.mkdtemp(prefix="pyrocket-flights-"))
        try:
            yield temporary
        finally:
            if not wanted.keep:
                shutil.rmtree(temporary)
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SystemExit(f"{path} exists already: name a new or an empty folder.")
    path.mkdir(parents=True, exist_ok=True)
    yield path.resolve()


def _fate(wanted: argparse.Namespace, folder: Path) -> str:
    if wanted.keep or wanted.path:
        return f"the files are in {folder}"
    return "the files are deleted now; use --keep to keep them"


def _publish(steps: Steps, spark: SparkSession, source: pa.Table, path: Path) -> None:
    """Create the store and the topic, and write the flights to it."""
    with Store.open(path, create=True) as store:
        store.topics.create(TOPIC)
    messages = to_messages(spark.createDataFrame(source).repartition(TASKS))
    writer = messages.write.format("pyrocket").mode("append").option("topic", TOPIC)

    def done() -> Done:
        # All rows become visible together, after the last task.
        published = _rows_in(path)
        return (published, len(source), "rows") if published else tasks_done(spark)

    steps.run("publish", lambda: writer.save(str(path)), done)


def _rows_in(path: Path) -> int:
    """Return the number of messages in the topic."""
    with Store.open(path, read_only=True) as store:
        return sum(queue.maximum - queue.minimum for queue in store.offsets(TOPIC).values())


def _stream(steps: Steps, spark: SparkSession, folder: Path, total: int) -> dict[str, int]:
    """Run both streaming jobs; return the number of flights counted for each carrier."""
    jobs = Jobs(spark, folder, TOPIC, rows_per_batch=-(-total // MICRO_BATCHES))
    _follow(steps, "stream: windowed count", jobs.count_by_day(), total)
    _follow(steps, "stream: JSON to Parquet", jobs.write_parquet(), total)
    return counts_by_carrier(spark)


def _follow(steps: Steps, label: str, query: StreamingQuery, total: int) -> None:
    """Show a query's progress until it ends; a failure of the query is raised."""
    steps.run(label, query.awaitTermination, lambda: (rows_read(query), total, "rows"))


def _export(steps: Steps, folder: Path) -> None:
    output = str(folder / "export.parquet")
    arguments = ["--path", str(folder / "store"), "--topic", TOPIC, "--output", output]
    steps.run("spark-submit: export", lambda: spark_submit("export_parquet.py", *arguments))


def _compare(source: pa.Table, topic: pa.Table, folder: Path) -> list[str]:
    """Return every difference between the source and the results, one line each."""
    stream = parquet.read_table(folder / "stream.parquet", columns=["id", "carrier", "distance"])
    export = parquet.read_table(folder / "export.parquet", columns=["key", "tags", "body"])
    found = {"topic": topic, "stream": stream, "export": flights_of(export)}
    return [
        f"{name}: {line}"
        for name, flights in found.items()
        for line in differences(source, flights)
    ]


def _read_topic(spark: SparkSession, path: Path) -> pa.Table:
    reader = spark.read.format("pyrocket").option("topic", TOPIC)
    columns = "key STRING, tags STRING, body STRING"
    return flights_of(reader.schema(columns).load(str(path)).toArrow())


def _conclude(steps: Steps, problems: list[str]) -> int:
    for line in problems:
        steps.say(f"DIFFERENT: {line}")
    if not problems:
        steps.say("Source, topic, windowed count, stream and export agree.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
