"""A schema as a projection: names, types and the nullability that Spark checks."""

import pickle

import pyarrow as pa
import pytest
from pyrocket import PENDING_COLUMNS, VIEW_COLUMNS
from pyrocket.errors import SchemaError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)
from pyspark_pyrocket.arrow_types import arrow_schema, headers_of_map
from pyspark_pyrocket.columns.messages import (
    COLUMNS,
    HEADERS,
    KAFKA_DEFAULT,
    ROCKETMQ_DEFAULT,
    default_columns,
)
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.payload import Payload

MAP = pa.map_(pa.string(), pa.string())
SCANNED = {**PENDING_COLUMNS, **VIEW_COLUMNS["commitlog"], **VIEW_COLUMNS["retry"]}


def every_type(nullable=True):
    """Return each column in each of its types."""
    return [
        StructField(
            name, never_null(variant.spark_type) if not nullable else variant.spark_type, nullable
        )
        for name, variants in COLUMNS.items()
        for variant in variants
    ]


def never_null(spark_type):
    if isinstance(spark_type, ArrayType):
        return ArrayType(never_null(spark_type.elementType), False)
    if isinstance(spark_type, MapType):
        return MapType(spark_type.keyType, spark_type.valueType, False)
    if isinstance(spark_type, StructType):
        return StructType([StructField(f.name, f.dataType, False) for f in spark_type])
    return spark_type


def scanned(columns, rows=3):
    """Return a batch as a scan returns it, without nulls."""
    values = {
        pa.string(): "a",
        pa.binary(): b"a",
        pa.bool_(): True,
        pa.int32(): 1,
        pa.int64(): 1,
        pa.list_(pa.string()): ["a", "b"],
        MAP: [("a", "1"), ("b", "2")],
        pa.timestamp("us", "UTC"): 1,
    }
    arrays = [pa.array([values[SCANNED[c]]] * rows, SCANNED[c]) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


@pytest.mark.parametrize("nullable", [True, False])
def test_arrow_types_are_those_that_spark_expects(nullable):
    schema = StructType(
        [StructField(f"c{i}", f.dataType, nullable) for i, f in enumerate(every_type(nullable))]
    )
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize("nullable", [True, False])
def test_batches_have_exactly_the_requested_schema_for_any_column(nullable):
    for field in every_type(nullable):
        schema = StructType([field])
        projection = Projection.of(schema)
        for rows in (3, 0):
            batch = projection.apply(scanned(projection.scan, rows))
            batch.validate(full=True)
            assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC")), field
            assert batch.num_rows == rows


def test_only_selected_columns_are_scanned_and_each_once():
    schema = StructType(
        [StructField(name, COLUMNS[name][0].spark_type) for name in ("value", "offset", "body")]
    )
    assert Projection.of(schema).scan == ("body", "queueOffset")


def test_bodies_share_their_memory_with_the_scan():
    projection = Projection.of(default_columns(kafka=True, headers=True, text=False))
    batch = scanned(projection.scan)
    result = projection.apply(batch)
    for ours, theirs, buffer in (("value", "body", 2), ("key", "keysText", 2)):
        assert (
            result.column(ours).buffers()[buffer].address
            == batch.column(theirs).buffers()[buffer].address
        )


def test_column_names_match_in_any_case_and_keep_their_spelling():
    schema = StructType([StructField("QueueOffset", COLUMNS["queueOffset"][0].spark_type)])
    projection = Projection.of(schema)
    assert projection.scan == ("queueOffset",)
    assert projection.schema.names == ["QueueOffset"]


@pytest.mark.parametrize(
    ("name", "near"), [("queueOffst", "queueOffset"), ("header", "headers"), ("tag", "tags")]
)
def test_an_unknown_column_is_rejected_with_the_nearest_name(name, near):
    with pytest.raises(SchemaError, match=f"no column '{name}'.*Did you mean '{near}'") as info:
        Projection.of(StructType([StructField(name, StringType())]))
    assert info.value.code == "COLUMN_UNKNOWN"


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("queueOffset", "int", "bigint"),
        ("queueId", "bigint", "int"),
        ("body", "int", "binary or string"),
        ("tags", "binary", "string"),
        ("keys", "string", "array<string>"),
        ("properties", "map<string,binary>", "map<string,string>"),
        ("storeTimestamp", "timestamp_ntz", "timestamp"),
        ("timestampType", "string", "int"),
        ("headers", "map<string,string>", "array<struct<key:string,value:binary>>"),
        ("topic", "char(5)", "string"),
        ("topic", "string collate UTF8_LCASE", "string"),
    ],
)
def test_a_wrong_type_is_rejected_with_the_right_one(name, wrong, right, spark_type):
    with pytest.raises(SchemaError) as info:
        Projection.of(StructType([StructField(name, spark_type(wrong))]))
    assert info.value.code == "COLUMN_TYPE"
    assert info.value.remedy == f"Its type is {right}."


@pytest.fixture(scope="module")
def spark_type():
    """Parse the types above without a session, which DDL would need."""
    names = {
        "int": '"integer"',
        "bigint": '"long"',
        "binary": '"binary"',
        "string": '"string"',
        "timestamp_ntz": '"timestamp_ntz"',
        "char(5)": '"char(5)"',
        "string collate UTF8_LCASE": '"string collate UTF8_LCASE"',
        "map<string,binary>": '{"type":"map","keyType":"string","valueType":"binary",'
        '"valueContainsNull":true}',
        "map<string,string>": '{"type":"map","keyType":"string","valueType":"string",'
        '"valueContainsNull":true}',
    }
    return lambda name: _parse_datatype_json_string(names[name])


def test_duplicate_columns_and_an_empty_schema_are_rejected():
    body = StructField("body", StringType())
    for first, second in (
        (body, StructField("BODY", StringType())),
        (StructField("Body", StringType()), body),
    ):
        with pytest.raises(SchemaError, match=f"names {first.name} twice"):
            Projection.of(StructType([first, second]))
    with pytest.raises(SchemaError, match="empty"):
        Projection.of(StructType([]))


def test_a_not_null_column_with_nulls_fails_the_read():
    projection = Projection.of(StructType([StructField("tags", StringType(), False)]))
    batch = pa.RecordBatch.from_arrays([pa.array(["a", None])], names=["tags"])
    with pytest.raises(SchemaError, match=r"'tags' is NOT NULL.*1 of 2 messages") as failure:
        projection.apply(batch)
    assert failure.value.code == "COLUMN_NULL"
    assert projection.apply(batch.slice(0, 1)).column("tags").to_pylist() == ["a"]


def test_a_schema_that_contradicts_the_value_format_is_rejected():
    binary = StructType([StructField("body", COLUMNS["body"][0].spark_type)])
    with pytest.raises(SchemaError, match="valueFormat=string"):
        Projection.of(binary, Payload(value_format="string"))
    assert Projection.of(binary, Payload(value_format="binary")).scan == ("body",)


def test_headers_of_a_message_without_headers_are_null_as_in_kafka():
    properties = pa.array([[("x", "9")], [("a", "1"), ("b", "2")], [], None], MAP)[1:]
    assert headers_of_map(
        properties, arrow_schema(StructType([StructField("h", HEADERS)]))[0].type
    ).to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}],
        None,
        None,
    ]


def test_each_mode_has_its_default_columns():
    ours = default_columns(kafka=False, headers=False, text=False)
    assert ours.names == list(ROCKETMQ_DEFAULT)
    kafka = default_columns(kafka=True, headers=True, text=True)
    assert kafka.names == [*KAFKA_DEFAULT, "headers"]
    assert kafka["value"].dataType == StringType()


def test_a_projection_is_small_when_pickled():
    projection = Projection.of(default_columns(kafka=False, headers=False, text=False))
    assert len(pickle.dumps(projection)) < 2_000
