"""Throughput of Spark reads and writes, compared with a source and a sink that only move Arrow
batches.
"""

import os
import time

import pytest
from bench.ceiling import prebuild, to_nowhere
from bench.data import fill
from bench.pairs import MIB, ROUNDS, cpu_seconds, measure, touch
from pyrocket import Message, Store

TASKS = 2


@pytest.mark.parametrize("schema", ["body BINARY, queueOffset BIGINT", None])
@pytest.mark.parametrize(("body_bytes", "rows"), [(1024, 1_000_000), (100, 4_000_000)])
def test_batch_read_beside_prebuilt_batches(
    spark_with_trivial, tmp_path, large, report, body_bytes, rows, schema
):
    spark, rows = spark_with_trivial, rows if large else 4_000
    with Store.open(tmp_path / "store", create=True) as store:
        fill(store, "T", rows, body_bytes, queues=TASKS)
        reader = spark.read.format("pyrocket").option("topic", "T")
        ours = (reader.schema(schema) if schema else reader).load(str(tmp_path / "store"))
        prebuild(store, ours.schema, tmp_path / "batches")
    options = {"batches": tmp_path / "batches", "tasks": TASKS}
    trivial = spark.read.format("trivial").schema(ours.schema).options(**options).load()
    assert ours.count() == trivial.count() == rows
    columns = "body, queueOffset" if schema else "all default columns"
    report.share(
        f"Spark batch read, {body_bytes} B, {columns}, beside prebuilt batches",
        lambda: measure(
            lambda: to_nowhere(ours),
            lambda: to_nowhere(trivial),
            ROUNDS if large else 1,
            clock=cpu_seconds,
        ),
        rows,
        0.75 if body_bytes == 1024 and schema else 0.68,
    )


@pytest.mark.parametrize(
    ("disk", "delivery"),
    [("memory", "at-least-once"), ("memory", "exactly-once"), ("disk", "at-least-once")],
)
def test_batch_write_beside_a_counting_writer(
    spark_with_trivial, tmp_path, fast_disk, large, report, disk, delivery
):
    """In memory, the log's pages are allocated in advance, so that only the code is measured. The
    pages of a log on disk and of staged rows are not.
    """
    spark, rows = spark_with_trivial, 250_000 if large else 2_000
    rounds = 3 if large else 1
    body = "cast(rpad(cast(id as string), 1024, 'x') as binary) AS body"
    frame = spark.range(0, rows, 1, TASKS).selectExpr(body)
    frame.write.parquet(str(tmp_path / "rows.parquet"))
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    path = (fast_disk if disk == "memory" else tmp_path) / "store"
    with Store.open(path, create=True) as store:
        store.append(Message(topic="T", body=b"first"))
    (log,) = (path / "commitlog").iterdir()
    if disk == "memory":
        touch(log, min(1 << 30, rows * (rounds + 1) * 1200))

    def ours():
        target = {"path": str(path), "topic": "T", "delivery": delivery}
        frame.write.format("pyrocket").mode("append").options(**target).save()

    def counted():
        frame.write.format("trivial").mode("append").save()

    pair = measure(ours, counted, rounds)
    name = f"Spark batch write, 1 KiB, {delivery}, to {disk}, beside a counting writer"
    hoped = "≥ 60 %" if (disk, delivery) == ("memory", "at-least-once") else ""
    report.rate(name, pair, rows / 1e6, "M rows", hoped)
    report.line(f"plain write of new pages to {disk}: {plain_write_rate(path):.2f} GB/s")


def plain_write_rate(folder):
    """Return the rate in GB/s of writing 256 MiB sequentially to a new file."""
    data = os.urandom(MIB)
    with open(folder / "plain", "wb", buffering=0) as file:
        start = time.perf_counter()
        file.writelines(data for _ in range(256))
        spent = time.perf_counter() - start
    (folder / "plain").unlink()
    return 256 * MIB / spent / 1e9
