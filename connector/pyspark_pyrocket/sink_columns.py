"""A DataFrame's columns as those of messages to send. Planned on the driver, pure.

Kafka's names stand for ours: `value`, `key`, `headers`, `partition`. Columns that only a source
has (`queueOffset`, `timestamp`, ...) are left out, so that a topic can be piped into another.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyrocket.errors import SchemaError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pyrocket.arrays import arrow_type
from pyspark_pyrocket.columns import COLUMNS, HEADERS
from pyspark_pyrocket.options.table import nearest

_TEXT, _BYTES = StringType(), BinaryType()
_NUMBER = (IntegerType(), LongType())

_SENT: dict[str, tuple[str, tuple[DataType, ...]]] = {
    "body": ("body", (_TEXT, _BYTES)),
    "value": ("body", (_TEXT, _BYTES)),
    "topic": ("topic", (_TEXT,)),
    "tags": ("tags", (_TEXT,)),
    "keys": ("keys", (_TEXT, ArrayType(_TEXT))),
    "key": ("keys", (_TEXT, _BYTES)),
    "properties": ("properties", (MapType(_TEXT, _TEXT),)),
    "headers": ("properties", (HEADERS,)),
    "queueId": ("queueId", _NUMBER),
    "partition": ("queueId", _NUMBER),
    "shardingKey": ("shardingKey", (_TEXT,)),
    "flag": ("flag", (IntegerType(),)),
    "delayLevel": ("delayLevel", (IntegerType(),)),
    "delay": ("delay", (_TEXT,)),
    "deliverTimestamp": ("deliverTimestamp", (TimestampType(),)),
}
"""Column of the DataFrame → what it is sent as, and the types it may have."""

_IGNORED = frozenset(COLUMNS) - frozenset(_SENT)


@dataclass(frozen=True)
class SinkColumn:
    """One column that is sent.

    source: its name here, as in `_SENT`; position: where it is in the DataFrame.
    arrow: the type in which it is worked on, whatever variant of it Spark hands over.
    """

    source: str
    position: int
    arrow: pa.DataType


SinkColumns = Mapping[str, SinkColumn]
"""What it is sent as → the column."""


def plan_columns(schema: StructType, topic: str) -> SinkColumns:
    """Match every field, or raise SchemaError; `topic` is the option, or empty."""
    chosen: dict[str, SinkColumn] = {}
    for position, field in enumerate(schema):
        name = _known_name(field)
        if name in _IGNORED:
            continue
        sent, types = _SENT[name]
        spark_type = _check_type(field, types)
        if sent in chosen:
            raise SchemaError(
                f"Columns {chosen[sent].source!r} and {name!r} mean the same.",
                remedy="Drop one of them.",
                code="COLUMN_TWICE",
            )
        chosen[sent] = SinkColumn(name, position, arrow_type(spark_type))
    _check_required(schema, chosen, topic)
    return {sent: column for sent, column in chosen.items() if not (topic and sent == "topic")}


def _known_name(field: StructField) -> str:
    name = {known.lower(): known for known in (*_SENT, *_IGNORED)}.get(field.name.lower())
    if name is not None:
        return name
    near = nearest(field.name, _SENT)
    raise SchemaError(
        f"A message has no column {field.name!r}.",
        remedy=(f"Did you mean {near!r}? " if near else "")
        + f"The sink takes {', '.join(_SENT)}. Put other columns into the body, for example "
        "with to_json(struct(*)) AS body.",
        code="COLUMN_UNKNOWN",
    )


def _check_type(field: StructField, types: tuple[DataType, ...]) -> DataType:
    # Spark's short form leaves nullability out: rows are checked when they come.
    allowed = {each.simpleString(): each for each in types}
    if field.dataType.simpleString() not in allowed:
        raise SchemaError(
            f"Column {field.name!r} is {field.dataType.simpleString()}.",
            remedy=f"It has to be {' or '.join(allowed)}: cast it.",
            code="COLUMN_TYPE",
        )
    return allowed[field.dataType.simpleString()]


def _check_required(schema: StructType, chosen: SinkColumns, topic: str) -> None:
    if "body" not in chosen:
        raise SchemaError(
            f"There is no column 'body' (or 'value') among {', '.join(schema.fieldNames())}.",
            remedy="Select the payload AS body (string or binary).",
            code="BODY_COLUMN_MISSING",
        )
    if "topic" not in chosen and not topic:
        raise SchemaError(
            "It is not said where the rows go: there is no option 'topic' and no column 'topic'.",
            remedy="Set the option, or select a column of that name.",
            code="TOPIC_COLUMN_MISSING",
        )
