"""JSON compared with Spark's `from_json`, `to_json` and inferred schemas, in one job each."""

import json
import math

import pyarrow as pa
import pytest
from pyspark.sql.functions import from_json, to_json
from pyspark_pyrocket.json.decode import Decoder
from pyspark_pyrocket.json.encode import json_text
from pyspark_pyrocket.json.infer import infer_schema
from pyspark_pyrocket.json.rows import read_rows
from pyspark_pyrocket.options.ddl import parse_ddl
from support.shares import share

DDL = (
    "i INT, b TINYINT, l BIGINT, f FLOAT, d DOUBLE, dec DECIMAL(6,2), s STRING, t TIMESTAMP, "
    "n TIMESTAMP_NTZ, x DATE, y BINARY, o BOOLEAN, a ARRAY<INT>, r STRUCT<p: INT, q: STRING>, "
    "m MAP<STRING,INT>, aa ARRAY<ARRAY<INT>>, ar ARRAY<STRUCT<p: INT>>, "
    "rr STRUCT<r: STRUCT<p: INT, q: INT>, a: ARRAY<INT>>, mr MAP<STRING,STRUCT<p: INT, q: INT>>"
)
SCHEMA = parse_ddl("valueSchema", DDL)
TOKENS = [
    *("1", "-1", "0", "127", "-129", "1.0", "1.5", "99999999999", "99999999999999999999", "true"),
    *("123456789.125", "0.005", "0.015", "1234.565", "12345.678", "NaN", "-Infinity", "null"),
    *('"NaN"', '"INF"', '"+INF"', '"-INF"', '"Infinity"', '"-Infinity"', '"1"', '"1.5"', '" 1"'),
    *('""', '"abc"', '"true"', '"\\u00e9\\n"', '"\\ud800"', '"aGk="', '"aGk"', '"a!k="'),
    *("{}", "[]", "[1,2]", '[1,"x",null,3]', "[[1]]", '[[1],["x"]]', '[{"p":"z"},{"p":1}]'),
    *('[1,{"p":1}]', '{"p":1}', '{"p":"z","q":5}', '{"a":1,"b":null}', '{"a":"x"}'),
    *('{"r":{"p":"x","q":2},"a":[1,"x"]}', '{"k":{"p":"x","q":2}}', '{"k":{"p":1},"j":3}'),
    *('"2024-01-02"', '"2024-1-2"', '"2024"', '"2024-01"', '" 2024-01-02 "', '"0000-01-01"'),
    *('"2024-01-02T03:04:05Z"', '"2024-01-02 03:04:05"', '"2024-01-02 03:04:05.123456789"'),
    *('"2024-01-02T03:04:05+01:30"', '"2024-01-02T03:04:05 Europe/Paris"', '"2024-01-02T03:04"'),
    *('"2024-01-02T03:04:05.5"', '"2024-13-01"', '"2024-02-30"', '"2024-01-02T25:00:00"'),
    *('"2024-01-02T03:04:05-08:30"', '"1969-12-31T23:00:00.5-01"'),
]
BODIES = [
    *("null", "[]", '[{"i":1}]', "1", '"x"', '{"i":1} x', '{"i":1}{"i":2}', '{"i":1},"x":2'),
    *('{"i":1,"i":2}', '{"i":1,"s":"a"', '{"i":1,"s":tru}', '{"i":1,}', '{"i":01}', '{"i":+1}'),
    *('\ufeff{"i":1}', '{"i":1,"zz":{"q":[1]}}', '{"s":"a\nb"}', '{"i":1 /*c*/}', '\n {"i":\n1}\n'),
    *('{"I":1}', '{"s":"a\tb"}', "{", "}"),
]
DIFFERENT = {
    # Numbers as strings are kept as they are written.
    *('{"s":NaN}', '{"s":-Infinity}', '{"s":123456789.125}'),
    # Bytes that Jackson reads as a byte or base64, days since 1970 as text, years of 5 digits.
    *('{"b":200}', '{"y":" "}', '{"x":"1"}', '{"x":"10000-01-01"}'),
    # Grouped digits, single quotes, two entries of one key, and an empty body.
    *('{"dec":"1,000"}', "{'i':1}", '{"m":{"a":1,"a":2}}', "", " "),
}
"""Intended differences: see `json_text` and `json_rows`."""


def plain(column):
    """Return rows as text without null fields; times are numbers, because Python has no year 0."""
    fields = {}
    for at, field in enumerate(column.type):
        child = column.field(at)
        if pa.types.is_timestamp(child.type):
            child = child.cast(pa.int64())
        elif pa.types.is_date(child.type):
            child = child.cast(pa.int32())
        fields[field.name] = child.to_pylist()
    return [
        repr({name: values[row] for name, values in fields.items() if values[row] is not None})
        for row in range(len(column))
    ]


def test_json_is_decoded_as_by_from_json(spark):
    bodies = [f'{{"{name}":{token}}}' for name in SCHEMA.names for token in TOKENS]
    bodies += [*BODIES, *sorted(DIFFERENT)]
    frame = spark.createDataFrame([(body,) for body in bodies], "body STRING").coalesce(1)
    parsed = frame.select(from_json("body", f"{DDL}, _corrupt_record STRING").alias("v"))
    theirs = parsed.toArrow().column("v").combine_chunks()
    corrupt = theirs.field("_corrupt_record").is_valid().to_pylist()
    theirs = theirs.cast(
        pa.struct([field for field in theirs.type if field.name != "_corrupt_record"])
    )
    ours, faults = read_rows([body.encode() for body in bodies], SCHEMA)
    rows = zip(bodies, plain(ours), plain(theirs), corrupt, strict=True)
    different = {
        body
        for at, (body, mine, other, bad) in enumerate(rows)
        if mine != other or bad != (at in faults)
    }
    assert different == DIFFERENT


@pytest.mark.parametrize(
    "ddl", share(["id INT, deep STRING", "id INT", "id INT, m MAP<STRING,INT>"], 1)
)
def test_a_deep_body_is_corrupt_at_the_same_level_as_in_spark(spark, ddl):
    levels = [1, 999, 1000, 1001, 100_000]
    bodies = [
        f'{{"id":{number},"{name}":{opening * (depth - 1)}1{closing * (depth - 1)}}}'
        for number, depth in enumerate(levels)
        for name in ("deep", "unknown")
        for opening, closing in (("[", "]"), ('{"k":', "}"))
    ]
    frame = spark.createDataFrame([(body,) for body in bodies], "body STRING").coalesce(1)
    parsed = frame.select(from_json("body", f"{ddl}, _corrupt_record STRING").alias("v"))
    theirs = parsed.select("v.id", "v._corrupt_record").toArrow()
    batch = {"body": pa.array(body.encode() for body in bodies)}
    for name in ("topic", "queueId", "queueOffset"):
        batch[name] = pa.nulls(len(bodies))
    fields = parse_ddl("valueSchema", ddl)
    ours = Decoder("PERMISSIVE", fields=fields, corrupt=True).widen(pa.record_batch(batch))
    assert ours.columns[-1].to_pylist() == theirs.column("_corrupt_record").to_pylist()
    assert ours.columns[-1].null_count == 3 * 4
    # If the deep value itself is read as text, Spark keeps the fields before it.
    if "deep" not in ddl:
        assert ours.column(4).to_pylist() == theirs.column("id").to_pylist()


ENCODED = """
    SELECT id,
      named_struct(
        'i', CAST(id AS INT), 'b', CAST(-id AS TINYINT), 'l', id * 1000000007,
        'n', CASE WHEN id % 2 = 0 THEN id END, 'void', NULL,
        'd', CASE id WHEN 0 THEN CAST('NaN' AS DOUBLE) WHEN 1 THEN CAST('Infinity' AS DOUBLE)
                     WHEN 2 THEN 1e300D WHEN 3 THEN 1.0D ELSE id / 7D END,
        'f', CASE id WHEN 0 THEN CAST('-Infinity' AS FLOAT) ELSE CAST(id / 8D AS FLOAT) END,
        'c', CAST(id / 3D AS DECIMAL(20, 10)), 'o', id > 2,
        's', CASE id WHEN 0 THEN 'a"b\\\\c/\\n\\t\\u0001\\u001f\\u007fé€😀' WHEN 1 THEN ''
                     WHEN 2 THEN 'plain' END,
        'y', CAST(CONCAT('x', id) AS BINARY), 'x', DATE'2024-02-28' + CAST(id AS INT),
        't', TIMESTAMP'2024-01-02 03:04:05.123Z', 'tz', TIMESTAMP_NTZ'1969-01-02 03:04:05.678',
        'a', CASE id WHEN 0 THEN array() WHEN 1 THEN array(1, NULL, 3) END,
        'as', array('x"y', NULL), 'ar', array(named_struct('p', nullif(id, 3)), NULL),
        'm', map('k"', id, 'z', NULL), 'mi', map(CAST(id AS INT), array(id)),
        'r', named_struct('p', CASE WHEN id > 1 THEN id END), 'q"uo', true,
        'e', CASE WHEN id > 3 THEN named_struct('p', CASE id WHEN 5 THEN 1 END) END,
        'em', CAST(map() AS MAP<STRING, INT>)
      ) AS v
    FROM range(0, 6, 1, 1)
"""


def same(mine, theirs):
    """Compare parsed JSON; pyrocket's times have six fractional digits, Spark's three."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=1e-6)
    if isinstance(mine, str) and "T03:04:05" in mine:
        return mine.removesuffix("Z") == theirs.removesuffix("Z") + "000"
    return type(mine) is type(theirs) and mine == theirs


def test_columns_are_encoded_as_by_to_json(spark):
    frame = spark.sql(ENCODED)
    table = frame.withColumn("theirs", to_json("v")).toArrow()
    ours = json_text(table.column("v").combine_chunks()).to_pylist()
    for mine, theirs in zip(ours, table.column("theirs").to_pylist(), strict=True):
        assert list(json.loads(mine)) == list(json.loads(theirs))
        for name, value in json.loads(theirs).items():
            assert same(json.loads(mine)[name], value), (name, json.loads(mine)[name], value)


@pytest.mark.parametrize(
    "bodies",
    share(
        [
            ['{"a":1,"b":"x","c":null}', '{"a":2.5,"d":[1,null,2.5],"e":{"f":true}}', '{"c":[]}'],
            [
                '{"a":1}',
                '{"a":"x"}',
                '{"b":[{"c":1},{"d":2}]}',
                '{"b":[]}',
                '{"e":{}}',
                '{"f":null}',
            ],
            ['{"a":99999999999999999999}', '{"a":1}', '{"b":true}', '{"b":1}', "[1]", "x"],
            ['{"a":9223372036854775807,"b":9223372036854775808,"c":18446744073709551615}'],
            ['{"a":-9223372036854775808,"b":-9223372036854775809}'],
            [f'{{"a":{"9" * 38},"b":-{"9" * 38},"c":{"9" * 39}}}'],
            ['{"a":[1]}', '{"a":{"b":1}}', '{"c":[[1],["x"]]}', '{"d":[true,1]}'],
        ],
        3,
    ),
)
def test_a_schema_is_inferred_as_spark_infers_it(spark, bodies):
    text = spark.createDataFrame([(body,) for body in bodies if body[0] == "{"], "body STRING")
    theirs = spark.read.json(text.rdd.map(lambda row: row[0])).schema
    ours = infer_schema(body.encode() for body in bodies)
    assert {f.name: sorted_type(f) for f in ours} == {f.name: sorted_type(f) for f in theirs}


def sorted_type(field):
    """Return the type with the fields of structs in Spark's order, by name."""
    return repr(sort(field.dataType))


def sort(kind):
    if kind.typeName() == "struct":
        return sorted((field.name, sort(field.dataType)) for field in kind)
    if kind.typeName() == "array":
        return ["array", sort(kind.elementType)]
    return kind.simpleString()
