"""Infers the schema of bodies, as Spark's `schema_of_json` does. Pure.

As in `JsonInferSchema`, whole numbers are BIGINT, or DECIMAL if they are longer; other numbers are
DOUBLE; fields that are always null or have no common type are STRING. Fields are in the order in
which they first occur. Unlike in Spark, objects and arrays nested deeper than MAX_LEVELS are
STRING.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import types

from pyspark_pyrocket.json.nesting import room_for_deep_bodies
from pyspark_pyrocket.json.rows import parse_object
from pyspark_pyrocket.json.values import JsonNumber, Whole

MAX_LEVELS = 64
"""Maximum levels of an inferred schema: Spark's Python code recurses through schemas, with three
frames for each level.
"""

_NUMBERS = (types.LongType, types.DecimalType, types.DoubleType)


def infer_schema(bodies: Iterable[bytes]) -> types.StructType | None:
    """Return the fields of all bodies that are JSON objects; None if no body is an object."""
    kind: types.DataType = types.NullType()
    for body in bodies:
        with room_for_deep_bodies():
            value, fault = parse_object(body)
            if not fault:
                kind = _common(kind, _type_of(value, MAX_LEVELS))
    fields = _without_null(kind)
    return fields if isinstance(fields, types.StructType) else None


def _type_of(value: Any, levels: int) -> types.DataType:
    """Return the type of a JSON value, cut off after this many levels."""
    if isinstance(value, dict | list) and not levels:
        return types.StringType()
    if isinstance(value, dict):
        fields = [(name, _type_of(item, levels - 1)) for name, item in value.items()]
        return types.StructType([types.StructField(name, kind) for name, kind in fields])
    if isinstance(value, list):
        element: types.DataType = types.NullType()
        for item in value:
            element = _common(element, _type_of(item, levels - 1))
        return types.ArrayType(element)
    if isinstance(value, JsonNumber):
        return _type_of_number(value)
    if isinstance(value, bool):
        return types.BooleanType()
    return types.NullType() if value is None else types.StringType()


def _type_of_number(value: JsonNumber) -> types.DataType:
    digits = value.lstrip("-")
    if not isinstance(value, Whole):
        return types.DoubleType()
    if -(1 << 63) <= int(value[:40]) < 1 << 63:
        return types.LongType()
    return types.DecimalType(len(digits), 0) if len(digits) <= 38 else types.DoubleType()


def _common(one: types.DataType, other: types.DataType) -> types.DataType:
    """Return the type for values of both types."""
    if one == other or isinstance(other, types.NullType):
        return one
    if isinstance(one, types.NullType):
        return other
    if isinstance(one, types.StructType) and isinstance(other, types.StructType):
        return _common_struct(one, other)
    if isinstance(one, types.ArrayType) and isinstance(other, types.ArrayType):
        return types.ArrayType(_common(one.elementType, other.elementType))
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS):
        return _common_number(one, other)
    return types.StringType()


def _common_number(one: types.DataType, other: types.DataType) -> types.DataType:
    if types.DoubleType() in (one, other):
        return types.DoubleType()
    digits = [
        kind.precision if isinstance(kind, types.DecimalType) else 20 for kind in (one, other)
    ]
    return types.DecimalType(max(digits), 0)


def _common_struct(one: types.StructType, other: types.StructType) -> types.StructType:
    kinds = {field.name: field.dataType for field in one}
    for field in other:
        kinds[field.name] = _common(kinds.get(field.name, types.NullType()), field.dataType)
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def _without_null(kind: types.DataType) -> types.DataType:
    """Replace types that were always null by STRING, and remove empty structs."""
    if isinstance(kind, types.StructType):
        fields = [types.StructField(field.name, _without_null(field.dataType)) for field in kind]
        return types.StructType(
            [field for field in fields if field.dataType != types.StructType([])]
        )
    if isinstance(kind, types.ArrayType):
        element = _without_null(kind.elementType)
        return types.ArrayType(types.StringType() if element == types.StructType([]) else element)
    return types.StringType() if isinstance(kind, types.NullType) else kind
