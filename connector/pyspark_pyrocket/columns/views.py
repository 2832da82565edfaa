"""The columns of views: additional columns of message views, and those of table views. Pure."""

from collections.abc import Mapping

import pyarrow as pa
from pyrocket import VIEW_COLUMNS
from pyrocket.errors import SchemaError
from pyspark.sql import types

from pyspark_pyrocket.arrow_types import arrow_schema
from pyspark_pyrocket.columns.messages import COLUMNS, DUE, unknown_column, wrong_type
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.selection import COMMITLOG, DLQ, RETRY, SCHEDULED

_SENT_BACK = ("consumerGroup", "originTopic", "originMsgId")

_OWN: Mapping[str, tuple[str, ...]] = {
    SCHEDULED: (DUE,),
    COMMITLOG: ("inQueue",),
    RETRY: (*_SENT_BACK, "consumed", DUE),
    DLQ: _SENT_BACK,
}
"""View → the columns that only its messages have."""

OF_VIEWS = frozenset(name for names in _OWN.values() for name in names)
"""All columns that only views have; messages read from topics do not have them."""

_SHOWN: Mapping[str, tuple[str, ...]] = {
    COMMITLOG: ("physicalOffset", "storeSize", "sysFlag"),
    RETRY: ("reconsumeTimes",),
    DLQ: ("reconsumeTimes",),
}
"""View → further columns of messages that the view shows by default."""

_SPARK: Mapping[pa.DataType, types.DataType] = {
    pa.string(): types.StringType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.timestamp("us", "UTC"): types.TimestampType(),
}


def columns_besides(view: str) -> list[types.StructField]:
    """Return the default columns of a view that follow those of messages."""
    names = (*_SHOWN.get(view, ()), *_OWN.get(view, ()))
    return [types.StructField(name, COLUMNS[name][0].spark_type) for name in names]


def check_columns(view: str, scanned: tuple[str, ...]) -> None:
    """Raise SchemaError if a column is selected that messages of this view do not have."""
    foreign = OF_VIEWS.difference(_OWN.get(view, ()))
    wrong = next((name for name in scanned if name in foreign), "")
    if wrong:
        views = [name for name, own in _OWN.items() if wrong in own]
        raise SchemaError(
            f"Only messages of view={' or '.join(views)} have a column {wrong!r}.",
            remedy="Set the option 'view' accordingly, or remove the column.",
            code="COLUMN_UNKNOWN",
        )


def table_schema(view: str) -> types.StructType:
    """Return the columns of the view `groups` or `topics`."""
    return types.StructType(
        [types.StructField(name, _spark_type(kind)) for name, kind in VIEW_COLUMNS[view].items()]
    )


def _spark_type(kind: pa.DataType) -> types.DataType:
    if pa.types.is_list(kind):
        return types.ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return types.StructType(
            [types.StructField(field.name, _spark_type(field.type)) for field in kind]
        )
    return _SPARK[kind]


def table_projection(view: str, schema: types.StructType) -> Projection:
    """Match every field by name and type, or raise SchemaError."""
    known = {field.name.lower(): field for field in table_schema(view)}
    matched = [_matched(field, view, known) for field in schema]
    scan = tuple(dict.fromkeys(matched))
    return Projection(
        scan=scan,
        schema=arrow_schema(schema),
        sources=tuple((scan.index(name),) for name in matched),
        converts=(_cast,) * len(matched),
    )


def _matched(field: types.StructField, view: str, known: Mapping[str, types.StructField]) -> str:
    """Return the column of the view with the name and type of a field."""
    column = known.get(field.name.lower())
    if column is None:
        names = [own.name for own in known.values()]
        message = f"view={view} has no column {field.name!r}."
        remedy = f"The columns are: {', '.join(names)}."
        raise unknown_column(message, field.name, names, remedy)
    wanted, has = field.dataType.simpleString(), column.dataType.simpleString()
    if wanted != has:
        raise wrong_type(field.name, wanted, f"Its type is {has}.")
    return column.name


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the array with the field names that Spark expects in nested types."""
    return array.cast(wanted)
