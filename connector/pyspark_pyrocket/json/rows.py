"""One body → one row, by the rules of Spark's `from_json` in PERMISSIVE mode. Pure.

Used for bodies that cannot be decoded in bulk: bad bodies, their neighbours, and all bodies of a
schema with maps. A body that is not a JSON object gives a row of nulls. A value of the wrong type
is null, and the rest of the row is kept. A list or a map with such an element is null as a whole,
as in `JacksonParser` with partial results.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyspark_pyrocket.arrow_types import arrow_type
from pyspark_pyrocket.json.bulk import Faults
from pyspark_pyrocket.json.nesting import MAX_DEPTH, depth_of, is_too_deep, room_for_deep_bodies
from pyspark_pyrocket.json.values import DECODER, MismatchError, atom_reader, text_of

_Read = Callable[[Any, list[str]], Any]
"""Converts a JSON value. Appends its faults to the list, each with its path within the value.

Raises MismatchError with the path, the wrong value and the type that it should have.
"""

_SPACE = " \t\r\n"
_SHOWN = 40


def read_rows(bodies: list[bytes], schema: StructType) -> tuple[pa.StructArray, Faults]:
    """Return a struct for each body, and the bad rows."""
    read = _struct_reader(schema)
    rows: list[dict[str, Any]] = []
    faults: Faults = {}
    with room_for_deep_bodies():
        for body in bodies:
            value, fault = parse_object(body)
            row_faults: list[str] = [fault] if fault else []
            row = {} if fault else read(value, row_faults)
            if row_faults:
                faults[len(rows)] = row_faults[0].removeprefix(".")
            rows.append(row)
    return pa.array(rows, arrow_type(schema)), faults


def parse_object(body: bytes) -> tuple[Any, str]:
    """Return the JSON object of a body, or the fault; text after the object is ignored.

    The caller must have entered `room_for_deep_bodies`.
    """
    try:
        text = body.decode().lstrip(_SPACE)
        if is_too_deep(body):
            depth = depth_of(body)
            return None, f"it is nested {depth} levels deep, and at most {MAX_DEPTH} are read"
        value, _ = DECODER.raw_decode(text)
    except UnicodeDecodeError as error:
        return None, f"it is not UTF-8: {error.reason} at byte {error.start}"
    except ValueError as error:
        return None, f"it is not JSON: {error}"
    if not isinstance(value, dict):
        return None, f"it is not a JSON object: {_shown(value)}"
    return value, ""


def _reader(kind: DataType) -> _Read:
    if isinstance(kind, StructType):
        return _struct_reader(kind)
    if isinstance(kind, ArrayType):
        return _array_reader(kind)
    if isinstance(kind, MapType):
        return _map_reader(kind)
    read_atom = atom_reader(kind)

    def read(value: Any, faults: list[str]) -> Any:
        try:
            return read_atom(value)
        except MismatchError:
            raise MismatchError("", value, kind) from None

    return read


def _struct_reader(kind: StructType) -> _Read:
    fields = [(field.name, _reader(field.dataType)) for field in kind]

    def read(value: Any, faults: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise MismatchError("", value, kind)
        row = {}
        for name, read_field in fields:
            member = value.get(name)
            if member is not None:
                row[name] = _placed(f".{name}", read_field, member, faults, keep=True)
        return row

    return read


def _array_reader(kind: ArrayType) -> _Read:
    read_element = _reader(kind.elementType)

    def read(value: Any, faults: list[str]) -> list[Any]:
        if not isinstance(value, list):
            raise MismatchError("", value, kind)
        return [
            None if element is None else _placed(f"[{at}]", read_element, element, faults)
            for at, element in enumerate(value)
        ]

    return read


def _map_reader(kind: MapType) -> _Read:
    read_value = _reader(kind.valueType)

    def read(value: Any, faults: list[str]) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise MismatchError("", value, kind)
        return [
            (
                text_of(key),
                None if member is None else _placed(f"[{key!r}]", read_value, member, faults),
            )
            for key, member in value.items()
        ]

    return read


def _placed(place: str, read: _Read, value: Any, faults: list[str], *, keep: bool = False) -> Any:
    """Convert the value at `place`; with `keep`, a value of the wrong type becomes None."""
    before = len(faults)
    try:
        return read(value, faults)
    except MismatchError as error:
        inner, wrong, kind = error.args
        if not keep:
            raise MismatchError(place + inner, wrong, kind) from None
        faults.append(f"{inner} is {_shown(wrong)}, not {kind.simpleString()}")
        return None
    finally:
        if len(faults) > before:
            faults[before:] = [place + fault for fault in faults[before:]]


def _shown(value: Any) -> str:
    text = text_of(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
