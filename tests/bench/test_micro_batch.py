"""The fixed cost of a micro-batch, and the cost of an idle query."""

import time
from statistics import median

import psutil
import pyarrow as pa
import pytest
from pyrocket import Message, Store
from pyspark_pyrocket.tools.checkpoints.commands import queries_on


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        store.topics.create("T", read_queues=1, write_queues=1)
        yield store


def start(spark, source, options, folder):
    reader = spark.readStream.format(source).options(**options)
    query = reader.load().writeStream.format("noop")
    return query.option("checkpointLocation", str(folder)).start()


def advance(clock, number):
    """Set the trivial source's clock, which may be read at any time."""
    draft = clock.with_suffix(".new")
    draft.write_text(str(number))
    draft.replace(clock)


def trigger_ms(query):
    """Return the duration of the newest micro-batch that had rows."""
    query.processAllAvailable()
    return next(
        progress.durationMs["triggerExecution"]
        for progress in reversed(query.recentProgress)
        if progress.numInputRows
    )


def test_fixed_cost_beside_the_trivial_source(spark, store, tmp_path, large, report):
    from bench.trivial import Trivial

    spark.dataSource.register(Trivial)
    clock, batch = tmp_path / "clock", tmp_path / "batches"
    clock.write_text("0")
    schema = pa.schema([("at", pa.int32())])
    with pa.OSFile(f"{batch}.0", "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.int32())], schema=schema))
    ours = start(
        spark,
        "pyrocket",
        {"path": store.path, "topic": "T", "startingOffsets": "earliest"},
        tmp_path / "ours",
    )
    options = {"clock": clock, "batches": batch, "tasks": 1}
    trivial = start(spark, "trivial", options, tmp_path / "trivial")
    times = []
    for number in range(1, (55 if large else 2) + 1):
        store.append(Message(topic="T", body=b"x"))
        mine = trigger_ms(ours)
        advance(clock, number)
        times.append((mine, trigger_ms(trivial)))
    ours.stop()
    trivial.stop()
    counted = times[5:] or times
    mine, other = (median(pair[side] for pair in counted) for side in (0, 1))
    report.line(
        f"micro-batch of one row and one task, median of {len(counted)} pairs: {mine:.0f} ms;"
        f" trivial source {other:.0f} ms (hoped for: within max(20 ms, 10 %))"
    )


def addition_ms(query):
    """Return the duration of the newest micro-batch, which may have no rows."""
    query.processAllAvailable()
    return next(
        progress.durationMs["triggerExecution"]
        for progress in reversed(query.recentProgress)
        if "addBatch" in progress.durationMs
    )


@pytest.mark.parametrize("rows", [0, 1])
def test_fixed_cost_of_the_sink_beside_a_trivial_sink(spark, store, tmp_path, large, report, rows):
    """Both queries have the same source, which yields prebuilt batches."""
    from bench.trivial import Trivial

    spark.dataSource.register(Trivial)
    clock, batch = tmp_path / "clock", tmp_path / "batches"
    clock.write_text("0")
    schema = pa.schema([("at", pa.int32())])
    with pa.OSFile(f"{batch}.0", "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1] * rows, pa.int32())], schema=schema))
    queries = []
    for sink, options in {
        "pyrocket": {"path": store.path, "topic": "T"},
        "trivial": {},
    }.items():
        source = spark.readStream.format("trivial").options(clock=clock, batches=batch, tasks=1)
        frame = source.load().selectExpr("CAST(at AS STRING) AS body")
        writer = frame.writeStream.format(sink).options(**options)
        queries.append(writer.option("checkpointLocation", str(tmp_path / sink)).start())
    times = []
    for number in range(1, (55 if large else 2) + 1):
        advance(clock, number)
        times.append([addition_ms(query) for query in queries])
    for query in queries:
        query.stop()
    assert store.max_offset("T", 0) == rows * len(times)
    counted = times[5:] or times
    mine, other = (median(pair[side] for pair in counted) for side in (0, 1))
    report.line(
        f"exactly-once sink, micro-batch of {rows} rows in one task, median of {len(counted)}"
        f" pairs: {mine:.0f} ms; trivial sink {other:.0f} ms"
        + (" (hoped for: within 20 ms)" if not rows else "")
    )


def test_idle_query(spark, store, tmp_path, large, report):
    query = start(spark, "pyrocket", {"path": store.path, "topic": "T"}, tmp_path / "checkpoint")
    query.processAllAvailable()
    (planner,) = map(psutil.Process, queries_on(store.path))
    seconds = 20 if large else 0.2
    planner.cpu_percent()
    time.sleep(seconds)
    share = planner.cpu_percent()
    query.stop()
    report.line(
        f"planner of an idle query, default trigger, {seconds} s: {share:.1f} % of a core"
        " (hoped for: < 5 %)"
    )
