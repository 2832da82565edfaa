"""Infers the schema of bodies, as Spark's `schema_of_json` does. Pure.

As in `JsonInferSchema`, whole numbers are BIGINT, or DECIMAL if they are longer; other numbers are
DOUBLE; fields that are always null or have no common type are STRING. Fields are in the order in
which they first occur. Unlike in Spark, objects and arrays nested deeper than MAX_LEVELS are
STRING.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pyspark_pyrocket.json.nesting import room_for_deep_bodies
from pyspark_pyrocket.json.rows import parse_object
from pyspark_pyrocket.json.values import JsonNumber, Whole

MAX_LEVELS = 64
"""Maximum levels of an inferred schema: Spark's Python code recurses through schemas, with three
frames for each level.
"""

_NUMBERS = (LongType, DecimalType, DoubleType)


def infer_schema(bodies: Iterable[bytes]) -> StructType | None:
    """Return the fields of all bodies that are JSON objects; None if no body is an object."""
    found: DataType = NullType()
    for body in bodies:
        with room_for_deep_bodies():
            value, fault = parse_object(body)
            if not fault:
                found = _common(found, _type_of(value, MAX_LEVELS))
    fields = _without_null(found)
    return fields if isinstance(fields, StructType) else None


def _type_of(value: Any, levels: int) -> DataType:
    """Return the type of a JSON value, cut off after this many levels."""
    if isinstance(value, dict | list) and not levels:
        return StringType()
    if isinstance(value, dict):
        fields = [(name, _type_of(item, levels - 1)) for name, item in value.items()]
        return StructType([StructField(name, kind) for name, kind in fields])
    if isinstance(value, list):
        element: DataType = NullType()
        for item in value:
            element = _common(element, _type_of(item, levels - 1))
        return ArrayType(element)
    if isinstance(value, JsonNumber):
        return _type_of_number(value)
    if isinstance(value, bool):
        return BooleanType()
    return NullType() if value is None else StringType()


def _type_of_number(value: JsonNumber) -> DataType:
    digits = value.lstrip("-")
    if not isinstance(value, Whole):
        return DoubleType()
    if -(1 << 63) <= int(value[:40]) < 1 << 63:
        return LongType()
    return DecimalType(len(digits), 0) if len(digits) <= 38 else DoubleType()


def _common(one: DataType, other: DataType) -> DataType:
    """Return the type for values of both types."""
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _common_struct(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_common(one.elementType, other.elementType))
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS):
        return _common_number(one, other)
    return StringType()


def _common_number(one: DataType, other: DataType) -> DataType:
    if DoubleType() in (one, other):
        return DoubleType()
    digits = [kind.precision if isinstance(kind, DecimalType) else 20 for kind in (one, other)]
    return DecimalType(max(digits), 0)


def _common_struct(one: StructType, other: StructType) -> StructType:
    types = {field.name: field.dataType for field in one}
    for field in other:
        types[field.name] = _common(types.get(field.name, NullType()), field.dataType)
    return StructType([StructField(name, kind) for name, kind in types.items()])


def _without_null(kind: DataType) -> DataType:
    """Replace types that were always null by STRING, and remove empty structs."""
    if isinstance(kind, StructType):
        fields = [StructField(field.name, _without_null(field.dataType)) for field in kind]
        return StructType([field for field in fields if field.dataType != StructType([])])
    if isinstance(kind, ArrayType):
        element = _without_null(kind.elementType)
        return ArrayType(StringType() if element == StructType([]) else element)
    return StringType() if isinstance(kind, NullType) else kind
