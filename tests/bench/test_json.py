"""Conversion between JSON bodies and columns, compared with memcpy and Spark's own parser."""

import json
import random

import numpy as np
import pyarrow as pa
from bench.ceiling import prebuild, to_nowhere
from bench.pairs import ROUNDS, cpu_seconds, measure
from pyrocket import Store
from pyspark.sql.functions import count, from_json, struct, to_json
from pyspark.sql.functions import sum as total
from pyspark_pyrocket.json.decode import Decoder
from pyspark_pyrocket.options.ddl import parse_ddl

DDL = (
    "id BIGINT, at TIMESTAMP, price DOUBLE, ok BOOLEAN, name STRING, "
    "items ARRAY<STRUCT<sku: STRING, n: INT>>, note STRING"
)
SLICE = 16_384
TASKS = 2


def orders(count):
    """Return bodies of about 270 bytes: some text, some numbers, a list of structs."""
    chance = random.Random(7)
    return pa.array(
        [
            json.dumps(
                {
                    "id": number,
                    "at": f"2024-01-02T03:04:{number % 60:02}.{number % 1000:03}Z",
                    "price": chance.random() * 100,
                    "ok": number % 2 == 0,
                    "name": f"customer {chance.randrange(1000)}",
                    "items": [
                        {"sku": f"sku-{chance.randrange(99)}", "n": chance.randrange(5)}
                        for _ in range(3)
                    ],
                    "note": "x" * 50,
                }
            ).encode()
            for number in range(count)
        ],
        pa.binary(),
    )


def test_decoding_beside_memcpy(large, report):
    bodies = orders(SLICE if large else 64)
    rows = len(bodies)
    batch = pa.record_batch(
        {
            "body": bodies,
            "topic": pa.array(["T"] * rows),
            "queueId": pa.array([0] * rows, pa.int32()),
            "queueOffset": pa.array(range(rows), pa.int64()),
        }
    )
    spoiled = bodies.to_pylist()
    spoiled[rows // 2] = b"{"
    spoiled = batch.set_column(0, "body", pa.array(spoiled, pa.binary()))
    source = np.frombuffer(bodies.buffers()[2], np.uint8)
    target = np.empty_like(source)
    cases = {
        "all seven fields": (batch, DDL),
        "one field of seven": (batch, "id BIGINT"),
        "all fields, one body of 16384 bad": (spoiled, DDL),
        "with a map, which is read row by row": (batch, "id BIGINT, m MAP<STRING,INT>"),
    }
    for name, (found, ddl) in cases.items():
        decoder = Decoder("PERMISSIVE", fields=parse_ddl("ddl", ddl))
        pair = measure(
            lambda decoder=decoder, found=found: decoder.widen(found),
            lambda: np.copyto(target, source),
            9 if large else 1,
        )
        report.rate(f"JSON decoding beside memcpy, {name}", pair, len(source) / 1e9, "GB")


def fill_with(path, bodies, rows):
    """Append `rows` messages, with these bodies in rotation."""
    with Store.open(path, create=True) as store:
        store.topics.create("T", read_queues=TASKS, write_queues=TASKS)
        for first in range(0, rows, len(bodies)):
            some = bodies.slice(0, rows - first)
            queues = pa.array(np.arange(len(some), dtype=np.int32) % TASKS)
            store.append_batch(pa.record_batch({"body": some, "queueId": queues}), topic="T")


def test_from_json_and_group_by_beside_prebuilt_batches(
    spark_with_trivial, tmp_path, large, report
):
    """The share of the source in a job: Spark parses the bodies and aggregates."""
    rows = 400_000 if large else 400
    path = str(tmp_path / "store")
    fill_with(path, orders(min(rows, SLICE)), rows)
    spark = spark_with_trivial
    ours = spark.read.format("pyrocket").option("topic", "T").schema("body STRING").load(path)
    with Store.open(path, read_only=True) as store:
        prebuild(store, ours.schema, tmp_path / "batches")
    options = {"batches": tmp_path / "batches", "tasks": TASKS}
    trivial = spark.read.format("trivial").schema(ours.schema).options(**options).load()

    def grouped(frame):
        orders_of = frame.select(from_json("body", DDL).alias("v")).groupBy("v.name")
        return orders_of.agg(count("v.id").alias("orders"), total("v.price").alias("price"))

    assert [grouped(frame).selectExpr("sum(orders)").first()[0] for frame in (ours, trivial)] == [
        rows,
        rows,
    ]
    report.share(
        "Spark from_json and groupBy, beside prebuilt batches",
        lambda: measure(
            lambda: to_nowhere(grouped(ours)),
            lambda: to_nowhere(grouped(trivial)),
            ROUNDS if large else 1,
            clock=cpu_seconds,
        ),
        rows,
        0.9,
    )


def test_reading_json_beside_from_json(spark, tmp_path, large, report):
    rows = 400_000 if large else 400
    bodies = orders(min(rows, SLICE))
    path = str(tmp_path / "store")
    fill_with(path, bodies, rows)
    text = spark.read.format("pyrocket").options(topic="T", valueFormat="string")
    theirs = text.schema("body STRING").load(path).select(from_json("body", DDL).alias("v"))
    ours = spark.read.format("pyrocket").options(topic="T", valueFormat="json").schema(DDL)
    ours = ours.load(path)
    assert ours.where("at IS NOT NULL AND size(items) = 3").count() == theirs.count() == rows
    pair = measure(
        lambda: to_nowhere(ours), lambda: to_nowhere(theirs.select("v.*")), 5 if large else 1
    )
    size = rows * len(bodies.buffers()[2]) / len(bodies) / 1e6
    report.rate("Spark read of JSON bodies, beside from_json", pair, size, "MB")


def test_writing_json_beside_to_json(spark, tmp_path, large, report):
    rows = 200_000 if large else 400
    text = spark.createDataFrame([(body.decode(),) for body in orders(min(rows, 2000)).to_pylist()])
    frame = text.select(from_json("_1", DDL).alias("v")).select("v.*")
    if large:
        frame = frame.crossJoin(spark.range(rows // 2000).toDF("copy"))
    frame.write.parquet(str(tmp_path / "rows"))
    frame = spark.read.parquet(str(tmp_path / "rows"))
    target = {"path": str(tmp_path / "store"), "topic": "T"}

    def ours():
        writer = frame.write.format("pyrocket").mode("append").options(**target)
        writer.option("valueFormat", "json").save()

    def theirs():
        encoded = frame.select(to_json(struct("*")).alias("body"))
        encoded.write.format("pyrocket").mode("append").options(**target).save()

    pair = measure(ours, theirs, 3 if large else 1)
    report.rate("Spark write of columns as JSON, beside to_json", pair, rows / 1e6, "M rows")
