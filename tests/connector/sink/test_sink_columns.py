"""The columns that a sink accepts, and the errors for others."""

import pyarrow as pa
import pytest
from pyrocket import SEND_COLUMNS
from pyrocket.errors import SchemaError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark_pyrocket.columns.messages import COLUMNS, HEADERS, default_columns
from pyspark_pyrocket.sink.columns import plan_columns, plan_json

TEXT = StringType()
STRINGS = MapType(StringType(), StringType())


def plan(option="t", /, **columns):
    return plan_columns(
        StructType([StructField(name, kind) for name, kind in columns.items()]), option
    )


def sources(planned):
    return {sent: column.source for sent, column in planned.items()}


@pytest.mark.parametrize("kind", [TEXT, BinaryType()])
@pytest.mark.parametrize("name", ["body", "value", "Body"])
def test_the_payload_is_body_or_value_of_text_or_bytes(name, kind):
    assert plan(**{name: kind})["body"].position == 0


def test_columns_of_rocketmq_and_kafka_are_sent_as_columns_of_messages():
    ours = plan(
        "",
        body=TEXT,
        topic=TEXT,
        tags=TEXT,
        keys=ArrayType(TEXT),
        properties=STRINGS,
        queueId=IntegerType(),
        shardingKey=TEXT,
        flag=IntegerType(),
        delayLevel=IntegerType(),
        delay=TEXT,
        deliverTimestamp=TimestampType(),
    )
    assert list(ours) == list(SEND_COLUMNS)
    kafka = plan(
        "", topic=TEXT, value=TEXT, key=BinaryType(), headers=HEADERS, partition=LongType()
    )
    assert sources(kafka) == {
        "topic": "topic",
        "body": "value",
        "keys": "key",
        "properties": "headers",
        "queueId": "partition",
    }


def test_the_option_overrides_a_topic_column():
    assert "topic" not in plan("t", body=TEXT, topic=TEXT)


@pytest.mark.parametrize("kafka", [False, True])
def test_a_topic_can_be_copied_to_another(kafka):
    schema = default_columns(kafka=kafka, headers=kafka, text=False)
    planned = plan_columns(schema, "copy")
    assert {"body", "keys", "properties", "queueId"} <= planned.keys()
    assert {column.source for column in planned.values()} <= set(COLUMNS)


def test_columns_that_only_reads_have_are_ignored():
    only = {"body", "value", "tags", "keys", "key", "topic", "properties", "headers", "flag"}
    only |= {"queueId", "partition"}
    others = {name: COLUMNS[name][0].spark_type for name in COLUMNS if name not in only}
    assert sources(plan(body=TEXT, **others)) == {"body": "body"}


@pytest.mark.parametrize(
    "pair",
    [
        {"body": TEXT, "value": TEXT},
        {"value": TEXT, "key": TEXT, "keys": TEXT},
        {"value": TEXT, "properties": STRINGS, "headers": HEADERS},
        {"value": TEXT, "queueId": IntegerType(), "partition": IntegerType()},
    ],
)
def test_two_names_of_the_same_column_are_rejected(pair):
    with pytest.raises(SchemaError, match="are the same column of messages") as info:
        plan(**pair)
    assert info.value.code == "COLUMN_TWICE"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("bodi", "body"),
        ("tag", "tags"),
        ("sharding_key", "shardingKey"),
        ("delay_level", "delayLevel"),
        ("deliverAt", "deliverTimestamp"),
    ],
)
def test_an_unknown_column_is_rejected_with_the_nearest_name(name, near):
    with pytest.raises(SchemaError, match=f"Did you mean '{near}'") as info:
        plan(body=TEXT, **{name: TEXT})
    assert info.value.code == "COLUMN_UNKNOWN"


def test_an_unknown_column_is_rejected_with_a_remedy_for_writing_it_to_the_body():
    with pytest.raises(SchemaError, match=r"no column 'zzzz'.*to_json"):
        plan(body=TEXT, zzzz=TEXT)


@pytest.mark.parametrize(
    ("name", "kind", "right"),
    [
        ("body", IntegerType(), "string or binary"),
        ("value", STRINGS, "string or binary"),
        ("topic", BinaryType(), "string"),
        ("tags", ArrayType(TEXT), "string"),
        ("keys", BinaryType(), "string or array<string>"),
        ("key", ArrayType(TEXT), "string or binary"),
        ("properties", MapType(TEXT, BinaryType()), "map<string,string>"),
        ("headers", STRINGS, "array<struct<key:string,value:binary>>"),
        ("queueId", TEXT, "int or bigint"),
        ("partition", TEXT, "int or bigint"),
        ("shardingKey", BinaryType(), "string"),
        ("flag", LongType(), "int"),
        ("delayLevel", LongType(), "int"),
        ("delay", DayTimeIntervalType(), "string"),
        ("deliverTimestamp", TimestampNTZType(), "timestamp"),
        ("deliverTimestamp", LongType(), "timestamp"),
    ],
)
def test_a_wrong_type_is_rejected_with_the_right_one(name, kind, right):
    body = {} if name in {"body", "value"} else {"body": TEXT}
    with pytest.raises(SchemaError) as info:
        plan("t", **body, **{name: kind})
    assert info.value.code == "COLUMN_TYPE"
    assert info.value.remedy == f"It has to be {right}: cast it."


def test_nullability_inside_a_column_does_not_matter():
    planned = plan(body=TEXT, keys=ArrayType(TEXT, False), properties=MapType(TEXT, TEXT, False))
    assert planned["keys"].arrow == pa.list_(pa.string())


def test_a_missing_body_column_is_reported():
    with pytest.raises(SchemaError, match="among tags") as info:
        plan(tags=TEXT)
    assert info.value.code == "BODY_COLUMN_MISSING"


def test_a_missing_topic_column_is_reported():
    with pytest.raises(SchemaError, match="There is no topic") as info:
        plan("", body=TEXT)
    assert info.value.code == "TOPIC_COLUMN_MISSING"


def plan_body(value_column="", **columns):
    fields = [StructField(name, kind) for name, kind in columns.items()]
    return plan_json(StructType(fields), "t", value_column)


def test_other_columns_become_the_json_body():
    planned, body = plan_body(
        id=LongType(), tags=TEXT, Key=TEXT, timestamp=TimestampType(), deep=StructType([])
    )
    assert sources(planned) == {"tags": "tags", "keys": "key"}
    assert (body.names, body.positions) == (("id", "timestamp", "deep"), (0, 3, 4))


def test_one_struct_column_can_be_the_whole_body():
    inner = StructType([StructField("tags", TEXT)])
    planned, body = plan_body("Payload", tags=TEXT, queueOffset=LongType(), payload=inner)
    assert sources(planned) == {"tags": "tags"}
    assert (body.positions, body.whole) == ((2,), True)


@pytest.mark.parametrize(
    ("value_column", "columns", "code", "error"),
    [
        ("", {"tags": TEXT}, "BODY_COLUMN_MISSING", "no column for the body"),
        ("p", {"tags": TEXT}, "BODY_COLUMN_MISSING", "no column 'p'"),
        ("", {"id": LongType(), "value": TEXT}, "COLUMN_TWICE", "there is also a column 'value'"),
        ("", {"id": LongType(), "flag": TEXT}, "COLUMN_TYPE", "'flag'"),
        ("", {"id": DayTimeIntervalType()}, "COLUMN_TYPE", "JSON cannot represent"),
        ("", {"id": ArrayType(DayTimeIntervalType())}, "COLUMN_TYPE", "JSON cannot represent"),
        ("p", {"p": TEXT}, "COLUMN_TYPE", "needs a struct"),
        ("p", {"p": StructType([]), "id": LongType()}, "COLUMN_UNKNOWN", "'id'"),
    ],
)
def test_columns_that_json_cannot_represent_are_rejected(value_column, columns, code, error):
    with pytest.raises(SchemaError, match=error) as info:
        plan_body(value_column, **columns)
    assert info.value.code == code
    assert info.value.remedy


def test_two_fields_of_one_name_are_rejected():
    twice = StructType([StructField("id", TEXT), StructField("id", TEXT)])
    with pytest.raises(SchemaError, match="two columns 'id'"):
        plan_json(twice, "t")
