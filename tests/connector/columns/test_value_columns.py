"""Columns that are decoded from bodies: their names, types and values."""

import pyarrow as pa
import pytest
from pyrocket.errors import InvalidInputError
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)
from pyspark_pyrocket.columns.messages import default_columns
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.columns.values import require_value_schema
from pyspark_pyrocket.options.ddl import parse_ddl
from pyspark_pyrocket.options.payload import Payload
from support.direct import read


def asked(ddl):
    """A DataFrame's schema."""
    return parse_ddl("schema", ddl)


def payload(ddl=None, mode="PERMISSIVE", kind="json", **options):
    schema = None if ddl is None else asked(ddl)
    return Payload(value_format=kind, value_schema=schema, mode=mode, **options)


def apply(projection, *bodies):
    columns = {
        "topic": pa.array(["t"] * len(bodies)),
        "queueId": pa.array([0] * len(bodies), pa.int32()),
        "queueOffset": pa.array(range(len(bodies)), pa.int64()),
        "body": pa.array(bodies, pa.binary()),
    }
    return projection.apply(pa.record_batch({name: columns[name] for name in projection.scan}))


def test_columns_may_have_any_order_and_only_selected_ones_are_decoded():
    projection = Projection.of(
        asked("b STRING, queueOffset BIGINT, A INT"), payload("a INT, b STRING, c DATE")
    )
    assert projection.decoder.fields.names == ["a", "b"]
    batch = apply(projection, b'{"a":1,"b":"x","c":"no date"}')
    assert batch.schema.names == ["b", "queueOffset", "A"]
    assert batch.to_pylist() == [{"b": "x", "queueOffset": 0, "A": 1}]


def test_bodies_are_not_read_if_no_column_needs_them():
    assert Projection.of(asked("queueOffset BIGINT"), payload("a INT")).scan == ("queueOffset",)


@pytest.mark.parametrize("ddl", ["queueOffset BIGINT", "queueOffset BIGINT, a INT"])
def test_the_number_of_dropped_rows_does_not_depend_on_the_columns(ddl):
    projection = Projection.of(asked(ddl), payload("a INT, b INT", mode="DROPMALFORMED"))
    batch = apply(projection, b'{"b":"x"}', b'{"b":1}')
    assert batch.column(0).to_pylist() == [1]


def test_the_raw_body_can_be_selected_beside_its_fields():
    projection = Projection.of(asked("body STRING, value BINARY, a INT"), payload())
    assert apply(projection, b'{"a":1}', b"\xff").to_pylist() == [
        {"body": '{"a":1}', "value": b'{"a":1}', "a": 1},
        {"body": None, "value": b"\xff", "a": None},
    ]


def test_the_corrupt_column_alone_checks_all_fields():
    projection = Projection.of(asked("bad STRING"), payload("a INT", corrupt_column="bad"))
    assert apply(projection, b'{"a":"x"}', b"{}").to_pylist() == [
        {"bad": '{"a":"x"}'},
        {"bad": None},
    ]


def test_one_struct_column_contains_the_selected_fields():
    known = payload("topic STRING, a INT", value_column="p")
    projection = Projection.of(asked("topic STRING, p STRUCT<A: INT>"), known)
    assert projection.decoder.fields.names == ["a"]
    assert apply(projection, b'{"topic":"x","a":1}').to_pylist() == [{"topic": "t", "p": {"A": 1}}]
    dropping = payload("topic STRING, a INT", "DROPMALFORMED", value_column="p")
    projection = Projection.of(asked("p STRUCT<a: INT>"), dropping)
    assert apply(projection, b'{"topic":[1],"a":1}', b'{"topic":{"b":1},"a":"x"}').to_pylist() == [
        {"p": {"a": 1}}
    ]


@pytest.mark.parametrize(
    ("ddl", "options", "code", "error"),
    [
        ("body BINARY", {"ddl": "QueueID INT"}, "VALUE_COLUMN_TAKEN", "'QueueID'.*'valueColumn'"),
        ("body BINARY", {"ddl": "a INT, A INT"}, "VALUE_COLUMN_TAKEN", "'A'"),
        ("body BINARY", {"value_column": "Body"}, "OPTION_CONFLICT", "'Body'.*another name"),
        ("body BINARY", {"corrupt_column": "tags"}, "OPTION_CONFLICT", "'tags'"),
        ("body BINARY", {"value_column": "p", "corrupt_column": "p"}, "OPTION_CONFLICT", "'p'"),
        ("b INT", {"ddl": "a INT, bb INT"}, "COLUMN_UNKNOWN", "'b'.*Did you mean 'bb'"),
        ("a INT", {"ddl": "a BIGINT"}, "COLUMN_TYPE", "cannot be int.*bigint, as in valueSchema"),
        ("q INT", {"value_column": "p"}, "COLUMN_UNKNOWN", "'q'"),
        ("p INT", {"value_column": "p"}, "COLUMN_TYPE", "struct"),
        ("p STRUCT<b: INT>", {"ddl": "a INT", "value_column": "p"}, "COLUMN_UNKNOWN", "'b'"),
        ("_corrupt_record INT", {}, "COLUMN_TYPE", "has to be string"),
        ("a INT", {"kind": "string"}, "COLUMN_UNKNOWN", "'a'"),
    ],
)
def test_invalid_names_and_types_are_rejected(ddl, options, code, error):
    with pytest.raises(InvalidInputError, match=error) as info:
        Projection.of(asked(ddl), payload(**options))
    assert info.value.code == code
    assert info.value.remedy


@pytest.mark.parametrize(
    "kind",
    [
        VariantType(),
        YearMonthIntervalType(),
        ArrayType(VariantType()),
        MapType(IntegerType(), StringType()),
        ArrayType(IntegerType(), False),
        StructType([StructField("x", TimestampType(), False)]),
        MapType(StringType(), LongType(), False),
    ],
)
def test_types_that_json_bodies_cannot_represent_are_rejected(kind):
    with pytest.raises(InvalidInputError) as info:
        Projection.of(StructType([StructField("a", kind)]), payload())
    assert info.value.code == "COLUMN_TYPE"


def test_fields_replace_the_body():
    fields = list(asked("a INT, b INT"))
    kafka = default_columns(kafka=True, headers=False, text=False, fields=fields)
    assert kafka.names[:4] == ["key", "a", "b", "topic"]
    ours = default_columns(kafka=False, headers=False, text=False, fields=fields)
    assert "body" not in ours.names
    assert ours.names[7:9] == ["a", "b"]


def test_a_stream_without_value_schema_is_rejected_with_an_error_that_shows_the_inferred_schema():
    with pytest.raises(InvalidInputError, match="it would be: a INT, b DATE") as info:
        require_value_schema(payload(), asked("a INT, topic STRING, b DATE"))
    assert info.value.code == "OPTION_MISSING"
    with pytest.raises(InvalidInputError, match="it would be: c INT"):
        require_value_schema(payload(value_column="p"), asked("p STRUCT<c: INT>"))
    require_value_schema(payload("a INT"), asked("a INT"))
    require_value_schema(Payload(), asked("body BINARY"))


@pytest.mark.parametrize("options", [{"view": "commitlog"}, {"keys": "k"}, {}])
def test_all_views_of_messages_decode_their_bodies(box, options):
    box.create(queues=1).send('{"a":1}', "x", '{"a":3}', queue=0, keys=pa.array(["k"] * 3))
    given = {"valueFormat": "json", "mode": "DROPMALFORMED", "valueSchema": "a INT, b STRING"}
    rows = read(box.options, **given, **options)
    assert [(row["a"], row["b"]) for row in rows] == [(1, None), (3, None)]
