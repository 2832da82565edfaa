"""A job written for Spark's Kafka source, migrated by changing its format and options."""

import pyarrow as pa
from pyspark_pyrocket import DefaultSource
from support.direct import read, write

KAFKA_SCHEMA = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
"""The schema in the Structured Streaming + Kafka guide."""

HEADERS = ("headers", "array<struct<key:string,value:binary>>")


def test_the_schema_equals_that_of_sparks_kafka_source(box):
    box.create()
    for headers, columns in (("false", KAFKA_SCHEMA), ("true", [*KAFKA_SCHEMA, HEADERS])):
        options = {**box.options, "schemaMode": "kafka", "includeHeaders": headers}
        schema = DefaultSource(options).schema()
        assert [(field.name, field.dataType.simpleString()) for field in schema] == columns
        assert all(field.nullable for field in schema)


def test_the_values_equal_those_of_kafkas_source(box):
    box.create(queues=2)
    box.send("bare", queue=0)
    box.send(
        "full",
        queue=1,
        keys=pa.array(["k"]),
        properties=pa.array([[("h", "é")]], pa.map_(pa.string(), pa.string())),
    )
    rows = read(box.options, schemaMode="kafka", includeHeaders="true")
    bare, full = sorted(rows, key=lambda row: row["partition"])
    assert (bare["key"], bare["value"], bare["headers"]) == (None, b"bare", None)
    place = {"topic": "t", "partition": 1, "offset": 0, "timestampType": 1}
    sent = {"key": b"k", "value": b"full", "headers": [{"key": "h", "value": "é".encode()}]}
    assert full == {**place, **sent, "timestamp": full["timestamp"]}


def test_a_kafka_job_reads_back_the_rows_that_it_wrote(box):
    headers = [{"key": "h", "value": b"v"}]
    sent = [(b"k%d" % (number % 7), str(number), headers) for number in range(100)]
    schema = "key BINARY, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    write(box.options, schema, sent[:50], sent[50:])
    rows = read(box.options, schemaMode="kafka", includeHeaders="true")
    assert sorted(int(row["value"]) for row in rows) == list(range(100))
    assert all(row["key"] == b"k%d" % (int(row["value"]) % 7) for row in rows)
    assert len({(row["key"], row["partition"]) for row in rows}) == 7, "equal keys share one"
    assert all(row["headers"] == headers for row in rows)
