"""Batch reads through Spark."""

import os
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructField, StructType
from pyspark_pyrocket.columns.messages import COLUMNS, ROCKETMQ_DEFAULT
from pyspark_pyrocket.columns.views import OF_VIEWS


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


def test_the_format_is_found_without_registering_it(spark, box):
    box.create()
    assert load(spark, box).columns == list(ROCKETMQ_DEFAULT)


def test_the_default_columns_contain_the_message(spark, box):
    fill(box)
    bare, full = load(spark, box).orderBy("queueId").collect()
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    assert (full.topic, full.brokerName, full.queueId, full.queueOffset) == ("t", "broker-a", 1, 0)
    assert (full.tags, full["keys"], full.body) == ("red", ["a", "b"], b"full")
    assert full.properties == {"colour": "é"}
    assert len(full.msgId) == 32
    assert (
        timedelta(0)
        <= now - full.storeTimestamp.astimezone(timezone.utc).replace(tzinfo=None)
        < timedelta(minutes=1)
    )
    assert (bare.tags, bare["keys"], bare.body, bare.properties) == (None, [], b"", {})


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


def test_every_column_with_values_can_be_read_as_not_null(spark, box):
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
    one = '{"t":{"0":0,"1":0}}', '{"t":{"0":0,"1":1}}'
    frame = (
        spark.read.format("pyrocket")
        .schema(schema)
        .options(**box.options, startingOffsets=one[0], endingOffsets=one[1])
        .load()
    )
    assert frame.count() == 1


def test_bodies_and_keys_can_be_read_as_bytes(spark, box):
    fill(box)
    schema = StructType([StructField(name, BinaryType()) for name in ("key", "value", "body")])
    frame = spark.read.format("pyrocket").schema(schema).options(**box.options).load()
    assert sorted(map(tuple, frame.collect()), key=lambda row: row[1]) == [
        (None, b"", b""),
        (b"a b", b"full", b"full"),
    ]


def test_value_format_string_decodes_bodies(spark, box):
    box.send("é", queue=0)
    frame = load(spark, box, valueFormat="string")
    assert dict(frame.dtypes)["body"] == "string"
    assert frame.first().body == "é"


def test_a_body_that_is_not_utf_8_fails_the_read_with_its_offset(spark, box):
    box.send(b"fine", b"\xff", queue=2)
    with pytest.raises(Exception, match=r"BODY_NOT_UTF8.*queue 2 offset 1"):
        load(spark, box, valueFormat="string").collect()


def test_an_empty_topic_is_read_as_an_empty_dataframe(spark, box):
    box.create()
    assert load(spark, box).count() == 0


def test_offsets_select_exactly_the_messages_between_them(spark, box):
    box.create(queues=2)
    box.send(*[f"a{i}" for i in range(10)], queue=0)
    box.send(*[f"b{i}" for i in range(10)], queue=1)
    frame = load(
        spark,
        box,
        startingOffsets='{"t":{"0":3,"1":"earliest"}}',
        endingOffsets='{"t":{"broker-a":{"0":5,"1":1}}}',
    )
    assert sorted(bytes(row.body) for row in frame.select("body").collect()) == [
        b"a3",
        b"a4",
        b"b0",
    ]


def test_several_topics_are_read_into_one_dataframe(spark, box):
    box.send("one", queue=0)
    other = box.other("u").create(queues=7)
    other.send("two", queue=6)
    frame = spark.read.format("pyrocket").options(**box.target, subscribe="t,u").load()
    assert {(row.topic, row.queueId, bytes(row.body)) for row in frame.collect()} == {
        ("t", 0, b"one"),
        ("u", 6, b"two"),
    }


def test_missing_topic_skip_ignores_a_missing_topic(spark, box):
    box.send("one")
    options = {**box.target, "subscribe": "t,later", "missingTopic": "wait"}
    assert spark.read.format("pyrocket").options(**options).load().count() == 1


def test_the_first_action_determines_the_messages_of_a_dataframe(spark, box):
    box.send("one")
    frame = load(spark, box)
    assert frame.count() == 1
    box.send("two")
    assert frame.count() == 1
    assert load(spark, box).count() == 2


def test_a_filter_is_correct_if_the_dataframe_is_used_again(spark, box):
    """Spark's own filter pushdown for Python sources would also narrow the second use."""
    box.send(*map(str, range(10)), queue=0)
    frame = load(spark, box)
    assert frame.where("queueOffset > 6").count() == 3
    assert frame.count() == 10
    assert frame.where("queueOffset > 6").union(frame.where("queueOffset < 2")).count() == 5


@pytest.mark.parametrize(("coalesce", "tasks"), [("true", 1), ("false", 4)])
def test_small_queues_share_a_task_by_default(spark, box, coalesce, tasks):
    box.create()
    for queue in range(4):
        box.send("x", queue=queue)
    assert load(spark, box, coalesceQueues=coalesce).rdd.getNumPartitions() == tasks


def test_large_and_compressed_bodies_are_read_completely(spark, box):
    bodies = [os.urandom(4 * 1024 * 1024), b"abc" * 100_000, b"x" * 4096, b"x" * 4095]
    box.send(*bodies, queue=0)
    schema = "queueOffset BIGINT, body BINARY, sysFlag INT"
    frame = spark.read.format("pyrocket").schema(schema).options(**box.options, verifyCrc=True)
    rows = sorted(frame.load().collect())
    assert [bytes(row.body) for row in rows] == bodies
    # Random bytes would not become smaller.
    assert [row.sysFlag & 1 for row in rows] == [0, 1, 1, 0]


def test_a_path_can_be_given_to_load_and_as_a_uri(spark, box):
    box.send("x")
    source = spark.read.format("pyrocket").option("topic", "t")
    assert source.load(box.path).count() == 1
    assert source.load(f"file://{box.path}").count() == 1
    assert source.load(os.path.relpath(box.path)).count() == 1


def test_sql_reads_and_writes_through_a_temporary_view(spark, box):
    box.create()
    spark.sql(f"CREATE TEMPORARY VIEW v USING pyrocket OPTIONS (path '{box.path}', topic 't')")
    try:
        frame = spark.createDataFrame([("from sql",)], "body STRING")
        frame.write.format("pyrocket").mode("append").options(**box.options).save()
        assert spark.sql("SELECT CAST(body AS STRING) FROM v").first()[0] == "from sql"
    finally:
        spark.catalog.dropTempView("v")


def test_a_table_without_options_fails_with_an_error_that_shows_how_to_pass_them(spark, box):
    box.send("x")
    spark.sql(f"CREATE TABLE trap USING pyrocket OPTIONS (path '{box.path}', topic 't')")
    try:
        with pytest.raises(Exception, match=r"OPTION_MISSING.*CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM trap").collect()
        given = f"WITH (path = '{box.path}', topic = 't')"
        assert spark.sql(f"SELECT * FROM trap {given}").count() == 1
    finally:
        spark.sql("DROP TABLE trap")
