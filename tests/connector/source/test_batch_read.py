"""Batch reads through Spark."""

import os
from datetime import datetime, timedelta, timezone

import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StructField, StructType
from pyspark_pyrocket.columns.messages import COLUMNS, ROCKETMQ_DEFAULT
from pyspark_pyrocket.columns.views import OF_VIEWS
from support.direct import read


def load(spark, box, **options):
    return spark.read.format("pyrocket").options(**box.options, **options).load()


def fill(box):
    """Append one message with all fields, and one with only a body."""
    box.create(queues=2)
    box.send(
        b"full",
        queue=1,
        tags=pa.array(["red"]),
        keys=pa.array([["a", "b"]]),
        properties=pa.array([[("colour", "é")]], pa.map_(pa.string(), pa.string())),
        flag=pa.array([7], pa.int32()),
    )
    box.send(b"", queue=0)


def test_the_default_columns_contain_the_message(box):
    fill(box)
    found = read(box.options)
    assert list(found[0]) == list(ROCKETMQ_DEFAULT)
    bare, full = sorted(found, key=lambda row: row["queueId"])
    place = [full[name] for name in ("topic", "brokerName", "queueId", "queueOffset")]
    assert place == ["t", "broker-a", 1, 0]
    assert (full["tags"], full["keys"], full["body"]) == ("red", ["a", "b"], b"full")
    assert full["properties"] == [("colour", "é")]
    assert len(full["msgId"]) == 32
    age = datetime.now(timezone.utc) - full["storeTimestamp"]
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert (bare["tags"], bare["keys"], bare["body"], bare["properties"]) == (None, [], b"", [])


def every_column(nullable):
    """Return all columns; a column that has two types gets the second type."""
    return StructType(
        [
            StructField(name, variants[-1].spark_type, nullable)
            for name, variants in COLUMNS.items()
            if name not in OF_VIEWS
        ]
    )


def test_every_column_is_read_in_its_type(spark, box):
    fill(box)
    schema = every_column(nullable=True)
    frame = spark.read.format("pyrocket").schema(schema).options(**box.options).load()
    assert frame.schema == schema
    (full,) = frame.where("queueId = 1").collect()
    assert full.value == full.body == "full"
    assert (full.key, full.partition, full.offset, full.timestampType) == ("a b", 1, 0, 1)
    assert full.timestamp == full.storeTimestamp
    assert [tuple(header) for header in full.headers] == [("colour", "é".encode())]
    assert (full.flag, full.sysFlag, full.reconsumeTimes) == (7, 0, 0)
    assert full.storeSize > 100
    assert full.systemProperties["UNIQ_KEY"] == full.msgId


def test_every_column_with_values_can_be_read_as_not_null(box):
    fill(box)
    inner = {
        "keys": ArrayType(COLUMNS["keys"][0].spark_type.elementType, False),
        "properties": MapType(*[COLUMNS["tags"][0].spark_type] * 2, False),
    }
    schema = StructType(
        [
            StructField(field.name, inner.get(field.name, field.dataType), False)
            for field in every_column(nullable=False)
        ]
    )
    one = {"startingOffsets": '{"t":{"0":0,"1":0}}', "endingOffsets": '{"t":{"0":0,"1":1}}'}
    assert len(read(box.options, schema, **one)) == 1


def test_several_topics_are_read_into_one_dataframe_and_a_missing_one_is_ignored(box):
    box.send("one", queue=0)
    other = box.other("u").create(queues=7)
    other.send("two", queue=6)
    found = read(box.target, subscribe="t,u,later", missingTopic="wait")
    assert {(row["topic"], row["queueId"], row["body"]) for row in found} == {
        ("t", 0, b"one"),
        ("u", 6, b"two"),
    }


def test_the_first_action_determines_the_messages_of_a_dataframe(spark, box):
    box.create()
    empty = load(spark, box)
    assert empty.count() == 0
    box.send("one")
    assert (empty.count(), load(spark, box).count()) == (0, 1)


def test_a_filter_is_correct_if_the_dataframe_is_used_again(spark, box):
    """Spark's own filter pushdown for Python sources would also narrow the second use."""
    box.send(*map(str, range(10)), queue=0)
    frame = load(spark, box)
    assert frame.where("queueOffset > 6").count() == 3
    assert frame.count() == 10
    assert frame.where("queueOffset > 6").union(frame.where("queueOffset < 2")).count() == 5


def test_large_and_compressed_bodies_are_read_completely(box):
    bodies = [os.urandom(4 * 1024 * 1024), b"abc" * 100_000, b"x" * 4096, b"x" * 4095]
    box.send(*bodies, queue=0)
    rows = read(box.options, "body BINARY, sysFlag INT", verifyCrc="true")
    assert [row["body"] for row in rows] == bodies
    # Random bytes would not become smaller.
    assert [row["sysFlag"] & 1 for row in rows] == [0, 1, 1, 0]


def test_a_path_can_be_given_to_load_and_as_a_uri(spark, box):
    box.send("x")
    source = spark.read.format("pyrocket").option("topic", "t")
    for path in (box.path, os.path.relpath(box.path)):
        assert "body" in source.load(path).columns
    assert source.load(f"file://{box.path}").count() == 1
