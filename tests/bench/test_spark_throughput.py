"""Through Spark and back, beside a source and a sink that do nothing but move Arrow batches."""

import pyarrow as pa
import pytest
from bench.data import fill
from bench.pairs import measure
from pyrocket import Store
from pyspark_pyrocket.projection import Projection

TASKS = 2


@pytest.fixture
def spark_with_trivial(spark):
    from bench.trivial import Trivial

    spark.dataSource.register(Trivial)
    return spark


def to_nowhere(frame):
    frame.write.format("noop").mode("overwrite").save()


def prebuilt(store, schema, path):
    """Write the first batch that a read yields, in the exact form that Spark gets it."""
    projection = Projection.of(schema)
    end = store.max_offset("T", 0)
    batch = projection.apply(next(store.scan("T", 0, 0, end, projection.scan)))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


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
        prebuilt(store, ours.schema, tmp_path / "batch.arrow")
    options = {"batch": tmp_path / "batch.arrow", "rows": rows // TASKS, "tasks": TASKS}
    trivial = spark.read.format("trivial").schema(ours.schema).options(**options).load()
    assert ours.count() == trivial.count() == rows
    rounds = 9 if large else 1
    pair = measure(lambda: to_nowhere(ours), lambda: to_nowhere(trivial), rounds)
    columns = "body, queueOffset" if schema else "all default columns"
    hoped = "≥ 80 %" if body_bytes == 1024 and schema else "≥ 70 %"
    name = f"Spark batch read, {body_bytes} B, {columns}, to noop"
    report.rate(name, pair, rows / 1e6, "M rows", hoped)


@pytest.mark.parametrize("disk", ["memory", "disk"])
def test_batch_write_beside_a_counting_writer(
    spark_with_trivial, tmp_path, fast_disk, large, report, disk
):
    spark, rows = spark_with_trivial, 500_000 if large else 2_000
    body = "cast(rpad(cast(id as string), 1024, 'x') as binary) AS body"
    frame = spark.range(0, rows, 1, TASKS).selectExpr(body)
    frame.write.parquet(str(tmp_path / "rows.parquet"))
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    folder = fast_disk if disk == "memory" else tmp_path

    def ours():
        target = {"path": str(folder / "store"), "topic": "T"}
        frame.write.format("pyrocket").mode("append").options(**target).save()

    def counted():
        frame.write.format("trivial").mode("append").save()

    pair = measure(ours, counted, 5 if large else 1)
    name = f"Spark batch write, 1 KiB, to {disk}, one fsync a task, beside a counting writer"
    report.rate(name, pair, rows / 1e6, "M rows", "≥ 60 %" if disk == "memory" else "")
