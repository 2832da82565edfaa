"""Maps a Spark type to a type that Arrow's JSON reader supports, and a conversion. Pure.

Arrow reads numbers, decimals, booleans, strings, structs and lists. Dates and times are read as
strings and cast; bytes are read as strings and decoded from base64. Arrow cannot read maps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller

import pyarrow as pa
from pyspark.sql import types

from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.json.base64_columns import decode_column

Finish = Callable[[pa.Array], pa.Array]
"""Converts the column that was read. Raises pa.ArrowInvalid."""

_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Reading:
    """The type that Arrow reads, and the conversion afterwards, if any."""

    read_as: pa.DataType
    finish: Finish | None = None


def reading_of(kind: types.DataType) -> Reading | None:
    """Return the type to read and its conversion; None if the type contains a map."""
    if isinstance(kind, types.MapType):
        return None
    if isinstance(kind, types.StructType):
        return _reading_of_struct(kind)
    if isinstance(kind, types.ArrayType):
        element = reading_of(kind.elementType)
        return None if element is None else _reading_of_list(element)
    if isinstance(kind, types.DecimalType):
        # The reader does not check values that it has rescaled: read_as has room for all of them.
        read_as = pa.decimal256(76 - kind.scale, kind.scale)
        return Reading(read_as, methodcaller("cast", arrow_type(kind)))
    finish = _FINISHES.get(kind)
    return Reading(arrow_type(kind)) if finish is None else Reading(pa.string(), finish)


def _reading_of_struct(kind: types.StructType) -> Reading | None:
    readings = [reading_of(field.dataType) for field in kind]
    known = [reading for reading in readings if reading is not None]
    if len(known) < len(readings):
        return None
    read_as = pa.struct(
        [(name, reading.read_as) for name, reading in zip(kind.names, known, strict=True)]
    )
    if all(reading.finish is None for reading in known):
        return Reading(read_as)

    def finish(array: pa.StructArray) -> pa.StructArray:
        children = [
            array.field(at) if reading.finish is None else reading.finish(array.field(at))
            for at, reading in enumerate(known)
        ]
        return pa.StructArray.from_arrays(children, names=kind.names, mask=array.is_null())

    return Reading(read_as, finish)


def _reading_of_list(element: Reading) -> Reading:
    read_as = pa.list_(pa.field("element", element.read_as))
    inner = element.finish
    if inner is None:
        return Reading(read_as)

    def finish(array: pa.ListArray) -> pa.ListArray:
        # The reader's arrays start at offset 0 and have no values in null slots.
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, inner(array.values), mask=mask)

    return Reading(read_as, finish)


def _timestamp(text: pa.StringArray) -> pa.Array:
    """Cast strings that either all have a zone or all have none; without a zone they are in UTC."""
    try:
        return text.cast(_UTC)
    except pa.ArrowInvalid:
        return text.cast(_NAIVE).cast(_UTC)


_FINISHES: dict[types.DataType, Finish] = {
    types.BinaryType(): decode_column,
    types.DateType(): methodcaller("cast", pa.date32()),
    types.TimestampType(): _timestamp,
    types.TimestampNTZType(): methodcaller("cast", _NAIVE),
}
