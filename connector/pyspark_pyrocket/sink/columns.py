"""Maps a DataFrame's columns to those of messages: planned on the driver, applied in tasks.

Kafka's names are accepted for RocketMQ's: `value`, `key`, `headers`, `partition`. Columns that only
reads have (`queueOffset`, `timestamp`, ...) are ignored, so that one topic can be copied to
another. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyrocket.errors import MessageError, SchemaError
from pyspark.sql import types

from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.columns.messages import COLUMNS, HEADERS, unknown_column
from pyspark_pyrocket.json.encode import json_objects, json_text
from pyspark_pyrocket.options.payload import BASE64, EMPTY, FAIL, TEXT_KEY
from pyspark_pyrocket.sink.kafka_rows import (
    encode_keys,
    is_utf8,
    mark_null_bodies,
    refuse_null_bodies,
    text_of_keys,
)

_TEXT, _BYTES = types.StringType(), types.BinaryType()
_COLLATION = re.compile(r" collate \w+")
_NUMBER = (types.IntegerType(), types.LongType())

_SENT: dict[str, tuple[str, tuple[types.DataType, ...]]] = {
    "body": ("body", (_TEXT, _BYTES)),
    "value": ("body", (_TEXT, _BYTES)),
    "topic": ("topic", (_TEXT,)),
    "tags": ("tags", (_TEXT,)),
    "keys": ("keys", (_TEXT, types.ArrayType(_TEXT))),
    "key": ("keys", (_TEXT, _BYTES)),
    "properties": ("properties", (types.MapType(_TEXT, _TEXT),)),
    "headers": ("properties", (HEADERS,)),
    "queueId": ("queueId", _NUMBER),
    "partition": ("queueId", _NUMBER),
    "shardingKey": ("shardingKey", (_TEXT,)),
    "flag": ("flag", (types.IntegerType(),)),
    "delayLevel": ("delayLevel", (types.IntegerType(),)),
    "delay": ("delay", (_TEXT,)),
    "deliverTimestamp": ("deliverTimestamp", (types.TimestampType(),)),
}
"""Column of the DataFrame → the column of messages, and the types it may have."""

_IGNORED = frozenset(COLUMNS) - frozenset(_SENT)


@dataclass(frozen=True)
class SinkColumn:
    """One column to write.

    source: its name, as in `_SENT`; position: its index in the DataFrame.
    arrow: the Arrow type to which every variant that Spark passes is cast.
    """

    source: str
    position: int
    arrow: pa.DataType


SinkColumns = Mapping[str, SinkColumn]
"""Column of messages → the column of the DataFrame."""


@dataclass(frozen=True)
class JsonBody:
    """The columns that are encoded as the JSON object in the body.

    positions: their indexes in the DataFrame.
    whole: whether the only column is a struct, which becomes the object itself.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    whole: bool = False


def plan_columns(schema: types.StructType, topic: str) -> SinkColumns:
    """Return the DataFrame's column for each column of messages. Raises SchemaError.

    topic: the value of the option, or an empty string.
    """
    chosen = _matched(enumerate(schema))
    if "body" not in chosen:
        raise SchemaError(
            f"There is no column 'body' (or 'value') among {', '.join(schema.fieldNames())}.",
            remedy="Select the payload AS body (string or binary), or set the option "
            "valueFormat=json, which encodes all columns that are not columns of a message.",
            code="BODY_COLUMN_MISSING",
        )
    return _with_topic(chosen, topic)


def plan_json(
    schema: types.StructType, topic: str, value_column: str = ""
) -> tuple[SinkColumns, JsonBody]:
    """Return the columns of messages, and the others as the JSON body. Raises SchemaError.

    value_column: the struct column that becomes the body; if empty, the body is encoded from all
    columns that are not columns of a message.
    """
    inside = {
        position: field
        for position, field in enumerate(schema)
        if _is_inside(field.name, value_column)
    }
    chosen = _matched((at, field) for at, field in enumerate(schema) if at not in inside)
    if "body" in chosen:
        raise SchemaError(
            f"valueFormat=json encodes the other columns as the body, but there is also a column "
            f"{chosen['body'].source!r}.",
            remedy="Remove 'valueFormat' or the column. To write a field of this name, put it into "
            "a struct column and name that column in the option 'valueColumn'.",
            code="COLUMN_TWICE",
        )
    if not inside:
        wanted = f"column {value_column!r}" if value_column else "column for the body"
        raise SchemaError(
            f"There is no {wanted} among {', '.join(schema.fieldNames())}.",
            remedy="Select the columns that the JSON objects should have.",
            code="BODY_COLUMN_MISSING",
        )
    return _with_topic(chosen, topic), _json_body(inside, whole=bool(value_column))


def _is_inside(name: str, value_column: str) -> bool:
    if value_column:
        return name.lower() == value_column.lower()
    # Columns that only reads have are data here; otherwise they would be dropped silently.
    return name.lower() not in {sent.lower() for sent in _SENT}


def _json_body(inside: Mapping[int, types.StructField], *, whole: bool) -> JsonBody:
    names = tuple(field.name for field in inside.values())
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SchemaError(
            f"There are two columns {twice!r}.", remedy="Drop one of them.", code="COLUMN_TWICE"
        )
    for field in inside.values():
        _check_json(field, whole=whole)
    return JsonBody(names, tuple(inside), whole)


def _check_json(field: types.StructField, *, whole: bool) -> None:
    kind = field.dataType
    if whole and not isinstance(kind, types.StructType):
        raise SchemaError(
            f"Column {field.name!r} is {kind.simpleString()}, but 'valueColumn' needs a struct.",
            remedy=f"Select struct(...) AS {field.name}.",
            code="COLUMN_TYPE",
        )
    try:
        arrow_type(_without_void(kind))
    except KeyError:
        raise SchemaError(
            f"Column {field.name!r} is {kind.simpleString()}, which JSON cannot represent.",
            remedy="Cast it, for example to string, or drop it.",
            code="COLUMN_TYPE",
        ) from None


def _without_void(kind: types.DataType) -> types.DataType:
    """Replace void, also inside structs, with a type that Arrow knows.

    Void inside arrays and maps is kept and so rejected: Spark passes corrupt data for it.
    """
    if isinstance(kind, types.NullType):
        return _TEXT
    if isinstance(kind, types.StructType):
        return types.StructType(
            [types.StructField(field.name, _without_void(field.dataType)) for field in kind]
        )
    return kind


def _matched(fields: Iterable[tuple[int, types.StructField]]) -> dict[str, SinkColumn]:
    chosen: dict[str, SinkColumn] = {}
    for position, field in fields:
        name = _known_name(field)
        if name in _IGNORED:
            continue
        sent, allowed = _SENT[name]
        spark_type = _check_type(field, allowed)
        if sent in chosen:
            raise SchemaError(
                f"Columns {chosen[sent].source!r} and {name!r} are the same column of messages.",
                remedy="Drop one of them.",
                code="COLUMN_TWICE",
            )
        chosen[sent] = SinkColumn(name, position, arrow_type(spark_type))
    return chosen


def _with_topic(chosen: SinkColumns, topic: str) -> SinkColumns:
    if "topic" not in chosen and not topic:
        raise SchemaError(
            "There is no topic: neither the option 'topic' nor a column 'topic' is given.",
            remedy="Set the option for all rows, or select a column with each row's topic.",
            code="TOPIC_COLUMN_MISSING",
        )
    return {sent: column for sent, column in chosen.items() if not (topic and sent == "topic")}


def _known_name(field: types.StructField) -> str:
    name = {known.lower(): known for known in (*_SENT, *_IGNORED)}.get(field.name.lower())
    if name is not None:
        return name
    remedy = (
        f"The sink takes {', '.join(_SENT)}. Put other columns into the body, for example "
        "with to_json(struct(*)) AS body, or with the option valueFormat=json."
    )
    raise unknown_column(f"A message has no column {field.name!r}.", field.name, _SENT, remedy)


def _check_type(field: types.StructField, kinds: tuple[types.DataType, ...]) -> types.DataType:
    # `simpleString` omits nullability, which is checked row by row. A collation does not matter.
    allowed = {kind.simpleString(): kind for kind in kinds}
    given = _COLLATION.sub("", field.dataType.simpleString())
    if given not in allowed:
        raise SchemaError(
            f"Column {field.name!r} is {field.dataType.simpleString()}.",
            remedy=f"It has to be {' or '.join(allowed)}: cast it.",
            code="COLUMN_TYPE",
        )
    return allowed[given]


def send_batch(
    batch: pa.RecordBatch,
    columns: SinkColumns,
    json_body: JsonBody | None = None,
    *,
    null_body: str = FAIL,
    key_encoding: str = TEXT_KEY,
) -> pa.RecordBatch:
    """Return the rows with the columns of an append. Raises MessageError, which names the row."""
    sent = {name: _sent(name, batch, column) for name, column in columns.items()}
    if json_body is not None:
        sent["body"] = _encoded(batch, json_body)
    if "keys" in columns and columns["keys"].source == "key":
        if key_encoding == BASE64:
            encode_keys(sent)
        else:
            sent["keys"] = text_of_keys(sent["keys"])
        sent["shardingKey"] = _route_by_key(sent)
    if null_body == EMPTY:
        mark_null_bodies(sent)
    refuse_null_bodies(sent)
    return pa.RecordBatch.from_arrays(list(sent.values()), names=list(sent))


def _sent(name: str, batch: pa.RecordBatch, column: SinkColumn) -> pa.Array:
    values = batch.column(column.position)
    # Large strings, dictionaries and NOT NULL fields are other forms of the same type.
    if not values.type.equals(column.arrow):
        values = values.cast(column.arrow)
    if name == "properties" and pa.types.is_list(column.arrow):
        return _map_of_headers(values)
    return values


def _encoded(batch: pa.RecordBatch, body: JsonBody) -> pa.StringArray:
    columns = [batch.column(position) for position in body.positions]
    if body.whole:
        return json_text(columns[0])
    return json_objects(body.names, columns, len(batch))


def _route_by_key(sent: dict[str, pa.Array]) -> pa.Array:
    """Return the sharding keys; a row with neither a sharding key nor a queue gets its key."""
    keys = sent["keys"]
    if "queueId" in sent:
        keys = pc.if_else(sent["queueId"].is_null(), keys, pa.scalar(None, pa.string()))
    given = sent.get("shardingKey", keys)
    return pc.if_else(pc.fill_null(pc.not_equal(given, ""), False), given, keys)


def _map_of_headers(headers: pa.ListArray) -> pa.MapArray:
    """Return Kafka's headers as a map of strings; a null list becomes an empty map."""
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    rows = pc.list_parent_indices(headers)
    names, values = headers.flatten().flatten()
    if names.null_count:
        raise _illegal(rows[pc.index(names.is_null(), True).as_py()], "has a header without a key")
    return pa.MapArray.from_arrays(offsets, names, _text_of_headers(values, rows))


def _text_of_headers(values: pa.BinaryArray, rows: pa.Array) -> pa.StringArray:
    """Return header values as UTF-8 text, as RocketMQ requires; `rows`: their row numbers."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        at = next(at for at, value in enumerate(values) if not is_utf8(value.as_py()))
        raise _illegal(rows[at], "has a header that is not UTF-8") from None


def _illegal(row: object, what: str) -> MessageError:
    return MessageError(f"row {row} {what}: RocketMQ stores headers as named text.")
