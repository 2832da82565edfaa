"""Batch writes through Spark."""

import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from support.direct import write
from support.shares import share

TEXT = StringType()
COLUMNS = StructType(
    [
        StructField("body", BinaryType()),
        StructField("topic", TEXT),
        StructField("tags", TEXT),
        StructField("keys", ArrayType(TEXT)),
        StructField("properties", MapType(TEXT, TEXT)),
        StructField("queueId", IntegerType()),
        StructField("shardingKey", TEXT),
        StructField("flag", IntegerType()),
    ]
)


def save(frame, box, **options):
    frame.write.format("pyrocket").mode("append").options(**{**box.options, **options}).save()


def test_every_column_is_read_back(box):
    rows = [
        (b"\x00\xff", "other", "red", ["a", "b"], {"c": "é"}, 2, None, 7),
        (b"", "other", None, None, None, None, "s", None),
    ]
    write(box.options, COLUMNS.simpleString(), rows)
    wanted = ("body", "topic", "tags", "keys", "properties", "flag")
    assert sorted(box.read(*wanted)) == [
        (b"", "t", None, [], [], 0),
        (b"\x00\xff", "t", "red", ["a", "b"], [("c", "é")], 7),
    ]
    system = {body: dict(names) for body, names in box.read("body", "systemProperties")}
    assert system[b""]["__SHARDINGKEY"] == "s"
    assert "__SHARDINGKEY" not in system[b"\x00\xff"]
    assert all("UNIQ_KEY" in names for names in system.values())
    assert dict(box.read("body", "queueId"))[b"\x00\xff"] == 2


def test_many_rows_in_many_batches_arrive_once_and_are_spread_evenly(spark, box):
    rows = spark.range(30_000).coalesce(1).select(f.col("id").cast("string").alias("value"))
    save(rows, box)
    stored = box.read("queueId", "body")
    assert sorted(int(body) for _, body in stored) == [*range(30_000)]
    queues = [queue for queue, _ in stored]
    assert {queues.count(queue) for queue in range(4)} == {7_500}


def test_single_rows_are_not_all_written_to_one_queue(box):
    write(box.options, "body STRING", *[[("x",)]] * 12)
    assert len({queue for (queue,) in box.read("queueId")}) > 1


def test_rows_of_one_sharding_key_keep_their_order_in_one_queue(box):
    rows = [(str(number), f"k{number % 50}") for number in range(1_000)]
    write(box.options, "body STRING, shardingKey STRING", rows)
    places = {}
    for queue, body in box.read("queueId", "body"):
        places.setdefault(int(body) % 50, []).append((queue, int(body)))
    for found in places.values():
        assert len({queue for queue, _ in found}) == 1
        assert [body for _, body in found] == sorted(body for _, body in found)


def test_a_write_without_rows_creates_the_topic(box):
    write(box.options, "body STRING", [], [])
    assert box.bodies() == []


def test_queue_ids_may_be_64_bit_integers(box):
    write(box.options, "body STRING, partition BIGINT", [("x", 3)])
    assert box.read("queueId") == [(3,)]


def test_a_copied_topic_has_the_same_messages(spark, box):
    rows = [(b"x", "t", "red", ["a", "b"], {"c": "d"}, 2, None, 7)]
    save(spark.createDataFrame(rows, COLUMNS), box)
    copy = box.other("copy")
    save(spark.read.format("pyrocket").options(**box.options).load(), copy)
    columns = ("queueId", "queueOffset", "body", "tags", "keys", "properties")
    assert copy.read(*columns) == box.read(*columns)


def error_of_row_7(spark, box, column, value, reason, **options):
    """Write two good Arrow batches of 3 rows, then one with a bad row in the middle."""
    good = [None, None, [], {}, None, None]
    names = ["body", "tags", "keys", "properties", "queueId", "topic"]
    schema = StructType(
        [
            StructField("body", TEXT),
            *(field for name in names[1:] for field in COLUMNS if field.name == name),
        ]
    )
    rows = [[f"row{number}", *good[1:5], "t"] for number in range(9)]
    rows[7][names.index(column)] = value
    frame = spark.createDataFrame([tuple(row) for row in rows], schema).coalesce(1)
    if column != "topic":
        frame = frame.drop("topic")
    options |= box.target if column == "topic" else box.options
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 3)
    try:
        with pytest.raises(Exception, match=reason) as info:
            frame.write.format("pyrocket").mode("append").options(**options).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    return str(info.value)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("body", None, "BODY_NULL.*has a null body"),
        *share(
            [
                ("topic", "no such name", "TOPIC_ILLEGAL.*no such name"),
                ("properties", {"p": "x" * 32_768}, "PROPERTIES_SIZE_EXCEEDED"),
                ("queueId", 4, "QUEUE_NOT_FOUND"),
                ("topic", None, "TOPIC_MISSING.*has a null topic"),
            ],
            0,
        ),
    ],
)
def test_a_bad_row_fails_its_task_and_nothing_is_written(spark, box, column, value, reason):
    """One error of each kind; those of the encoder are tested there."""
    error = error_of_row_7(spark, box, column, value, reason)
    assert "Partition 0, Arrow batch 2" in error
    if column != "topic" or value is None:
        assert "row 7 " in error
    assert "Nothing of this write is visible." in error
    assert box.rows() == 0


@pytest.mark.heavy
def test_at_least_once_appends_nothing_of_an_arrow_batch_with_a_bad_row(spark, box):
    reason = "BODY_NULL.*has a null body"
    error = error_of_row_7(spark, box, "body", None, reason, delivery="at-least-once")
    assert "Partition 0, Arrow batch 2" in error
    assert "row 7 " in error
    assert "6 rows before it were" in error
    assert box.bodies() == [f"row{number}".encode() for number in range(6)]
