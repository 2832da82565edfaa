"""Names and types that columns made of bodies may have. Pure."""

from collections.abc import Iterable

from pyrocket.errors import OptionError, SchemaError
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.columns.messages import COLUMNS
from pyspark_pyrocket.options.payload import Payload
from pyspark_pyrocket.options.table import nearest

OURS = {name.lower(): name for name in COLUMNS}
"""The columns that every message has, by their names in small letters."""


def check_names(payload: Payload, fields: Iterable[StructField]) -> None:
    """Raise unless each column that bodies are decoded into has a name of its own."""
    for option, name in (
        ("valueColumn", payload.value_column),
        ("columnNameOfCorruptRecord", payload.corrupt_column),
    ):
        if name.lower() in OURS:
            raise OptionError(
                f"Option {option!r} is {name!r}, and every message has a column of that name.",
                remedy="Choose another name.",
                code="OPTION_CONFLICT",
            )
    if payload.value_column.lower() == payload.corrupt_column.lower():
        raise OptionError(
            f"Option 'valueColumn' is {payload.value_column!r}, which holds corrupt records.",
            remedy="Choose another name.",
            code="OPTION_CONFLICT",
        )
    if payload.value_column:
        return
    taken = {**OURS, payload.corrupt_column.lower(): payload.corrupt_column}
    for field in fields:
        if field.name.lower() in taken:
            raise _taken(field.name, f"the column {taken[field.name.lower()]!r} of messages")
        taken[field.name.lower()] = field.name


def check_value(field: StructField, payload: Payload) -> None:
    """Raise SchemaError unless bodies can fill this column of the DataFrame."""
    if payload.value_column:
        _check_struct(field, payload)
    else:
        _check_known(field, payload.value_schema)
    _check_type(field)


def _taken(name: str, what: str) -> SchemaError:
    return SchemaError(
        f"The field {name!r} of the bodies has the name of {what}.",
        remedy="Set the option 'valueColumn' to a name, such as payload: that column is then a "
        f"struct with all fields, and this one is payload.{name}.",
        code="VALUE_COLUMN_TAKEN",
    )


def _check_struct(field: StructField, payload: Payload) -> None:
    if field.name.lower() != payload.value_column.lower():
        raise _unknown(field.name, [*COLUMNS, payload.value_column])
    if not isinstance(field.dataType, StructType):
        raise wrong_type(field.name, field.dataType, "struct: it holds the fields of bodies")
    for inner in field.dataType:
        _check_known(inner, payload.value_schema)


def _check_known(field: StructField, known: StructType | None) -> None:
    if known is None:
        return
    types = {each.name.lower(): each.dataType.simpleString() for each in known}
    if field.name.lower() not in types:
        raise _unknown(field.name, [*COLUMNS, *known.names])
    if field.dataType.simpleString() != types[field.name.lower()]:
        raise wrong_type(field.name, field.dataType, f"{types[field.name.lower()]}: valueSchema")


def _check_type(field: StructField) -> None:
    try:
        arrow_type(field.dataType)
    except KeyError:
        raise wrong_type(field.name, field.dataType, "of types that JSON is read into") from None
    if not _can_fill(field.dataType):
        raise SchemaError(
            f"Column {field.name!r} is {field.dataType.simpleString()}, with NOT NULL inside or "
            "keys that are no strings: no body can promise that.",
            remedy="Leave NOT NULL out of the column's type, and make the keys of maps STRING.",
            code="COLUMN_TYPE",
        )


def _can_fill(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(field.nullable and _can_fill(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return kind.containsNull and _can_fill(kind.elementType)
    if isinstance(kind, MapType):
        is_text = kind.keyType == StringType()
        return is_text and kind.valueContainsNull and _can_fill(kind.valueType)
    return True


def _unknown(name: str, names: list[str]) -> SchemaError:
    near = nearest(name, names)
    return SchemaError(
        f"There is no column {name!r}.",
        remedy=(f"Did you mean {near!r}? " if near else "")
        + f"The columns are: {', '.join(names)}. A field of bodies is named in 'valueSchema'.",
        code="COLUMN_UNKNOWN",
    )


def wrong_type(name: str, kind: DataType, right: str) -> SchemaError:
    """Return the error of a column that has another type than it must."""
    return SchemaError(
        f"Column {name!r} cannot be {kind.simpleString()}.",
        remedy=f"It has to be {right}.",
        code="COLUMN_TYPE",
    )
