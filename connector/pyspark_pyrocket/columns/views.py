"""The columns of views: additional columns of message views, and those of table views. Pure."""

from collections.abc import Mapping

import pyarrow as pa
from pyrocket import VIEW_COLUMNS
from pyrocket.errors import SchemaError
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_pyrocket.arrow_types import arrow_schema
from pyspark_pyrocket.columns.messages import COLUMNS, DUE
from pyspark_pyrocket.columns.projection import Projection
from pyspark_pyrocket.options.selection import COMMITLOG, DLQ, RETRY, SCHEDULED
from pyspark_pyrocket.options.table import nearest

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

_SPARK: Mapping[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", "UTC"): TimestampType(),
}


def columns_besides(view: str) -> list[StructField]:
    """Return the default columns of a view that follow those of messages."""
    names = (*_SHOWN.get(view, ()), *_OWN.get(view, ()))
    return [StructField(name, COLUMNS[name][0].spark_type) for name in names]


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


def table_schema(view: str) -> StructType:
    """Return the columns of the view `groups` or `topics`."""
    return StructType(
        [StructField(name, _spark_type(kind)) for name, kind in VIEW_COLUMNS[view].items()]
    )


def _spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return StructType([StructField(each.name, _spark_type(each.type)) for each in kind])
    return _SPARK[kind]


def table_projection(view: str, schema: StructType) -> Projection:
    """Match every field by name and type, or raise SchemaError."""
    known = {field.name.lower(): field for field in table_schema(view)}
    found = [_matched(field, view, known) for field in schema]
    scan = tuple(dict.fromkeys(found))
    return Projection(
        scan=scan,
        schema=arrow_schema(schema),
        sources=tuple((scan.index(name),) for name in found),
        converts=(_cast,) * len(found),
    )


def _matched(field: StructField, view: str, known: Mapping[str, StructField]) -> str:
    """Return the column of the view with the name and type of a field."""
    column = known.get(field.name.lower())
    if column is None:
        near = nearest(field.name, (one.name for one in known.values()))
        raise SchemaError(
            f"view={view} has no column {field.name!r}.",
            remedy=(f"Did you mean {near!r}? " if near else "")
            + f"The columns are: {', '.join(one.name for one in known.values())}.",
            code="COLUMN_UNKNOWN",
        )
    wanted, has = field.dataType.simpleString(), column.dataType.simpleString()
    if wanted != has:
        raise SchemaError(
            f"Column {field.name!r} cannot be {wanted}.",
            remedy=f"Its type is {has}.",
            code="COLUMN_TYPE",
        )
    return column.name


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the array with the field names that Spark expects in nested types."""
    return array.cast(wanted)
