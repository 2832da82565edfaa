"""DDL as Spark reads it, without Spark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.errors import SchemaError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark_pyrocket.options.ddl import parse_ddl, to_ddl

ATOMS = [
    *(BinaryType(), BooleanType(), ByteType(), DateType(), DecimalType(10, 0), DecimalType(38, 38)),
    *(DoubleType(), FloatType(), IntegerType(), LongType(), ShortType(), StringType()),
    *(TimestampNTZType(), TimestampType()),
]
READ = [
    "a INT",
    "a int, b string",
    "a: INT, b: STRUCT<c: STRING, d ARRAY<INT>>",
    "`a b` BIGINT, `c``d` DOUBLE, date DATE, array ARRAY<INT>, struct STRING",
    "a DECIMAL, b DECIMAL(5), c DEC(38, 10), d NUMERIC(1,1)",
    "m MAP<STRING,MAP<STRING,ARRAY<STRUCT<x:INT>>>>",
    "a TINYINT, b BYTE, c SHORT, d LONG, e REAL, f TIMESTAMP_LTZ, g TIMESTAMP_NTZ, h BOOLEAN",
    "a INT COMMENT 'it''s', b STRING COMMENT \"x, y\"",
    "struct<a: int, b: binary>",
    "\n a\tINT ,\n b STRING ",
    "_1 INT, 2nd STRING",
    "a STRING COLLATE UTF8_LCASE, b ARRAY<STRING COLLATE de_CI>",
]


def structs(kinds):
    names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
    fields = st.dictionaries(names, kinds, min_size=1, max_size=3)
    return fields.map(lambda found: StructType([StructField(n, k) for n, k in found.items()]))


KINDS = st.recursive(
    st.sampled_from(ATOMS),
    lambda kinds: (
        structs(kinds) | kinds.map(ArrayType) | kinds.map(lambda k: MapType(ATOMS[11], k))
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("ddl", READ)
def test_ddl_is_read_as_spark_reads_it(spark, ddl):
    assert to_ddl(parse_ddl("valueSchema", ddl)) == to_ddl(StructType.fromDDL(ddl))


def test_spark_parses_printed_ddl_to_the_same_schema(spark):
    schema = StructType([StructField(f"c {at}`", kind) for at, kind in enumerate(ATOMS)])
    nested = StructType(
        [StructField("s", ArrayType(schema)), StructField("m", MapType(ATOMS[11], schema))]
    )
    assert StructType.fromDDL(to_ddl(nested)) == nested


@given(structs(KINDS))
def test_printed_ddl_parses_to_the_same_schema(schema):
    assert parse_ddl("valueSchema", to_ddl(schema)) == schema
    assert parse_ddl("valueSchema", schema.json()) == schema


@pytest.mark.parametrize("ddl", ["a CHAR(3)", "a VARCHAR ( 10 )", "a character(1)"])
def test_a_string_with_a_length_is_a_string(ddl):
    """As `from_json` reads it: bodies are neither padded nor cut."""
    schema = StructType([StructField("a", StringType())])
    assert parse_ddl("valueSchema", ddl) == schema
    described = {**schema.jsonValue()["fields"][0], "type": "char(3)"}
    assert parse_ddl("valueSchema", json.dumps({"type": "struct", "fields": [described]})) == schema


def test_not_null_is_ignored_because_bodies_cannot_guarantee_it():
    assert parse_ddl("x", "a INT NOT NULL") == StructType([StructField("a", IntegerType())])


@pytest.mark.parametrize(
    ("ddl", "error"),
    [
        ("", "Expected the name of a column, at its end"),
        ("a", "Expected a type, at its end"),
        ("a INT,", "the name of a column"),
        ("a INT b STRING", "Unexpected text after the last column, at 'b STRING'"),
        ("a INTEGR", "INTEGR is not a type that JSON can be read into"),
        ("a INTERVAL", "INTERVAL is not a type"),
        ("a VARIANT", "VARIANT is not a type"),
        ("a ARRAY<INT", "Expected '>'"),
        ("a ARRAY", "Expected '<'"),
        ("a MAP<INT,STRING>", "keys of a map are STRING"),
        ("a DECIMAL(39)", "1 to 38 digits"),
        ("a DECIMAL(5,6)", "1 to 38 digits"),
        ("a DECIMAL(x)", "Expected a number, at 'x"),
        ("a INT, a STRING", "'a' is named twice"),
        ("a INT; b INT", "Invalid character, at '; b INT'"),
        ('{"type":"struct"}', "is not a Spark schema"),
        (json.dumps({"type": "struct", "fields": "x"}), "is not a Spark schema"),
        ("a " + "ARRAY<" * 100 + "INT" + ">" * 100, "nested too deeply"),
    ],
)
def test_errors_in_ddl_name_their_position(ddl, error):
    with pytest.raises(SchemaError, match=error) as info:
        parse_ddl("valueSchema", ddl)
    assert "valueSchema" in info.value.message
    assert info.value.remedy
