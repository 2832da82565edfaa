"""Encodes columns as JSON text with Arrow's kernels, column by column. Pure.

As in Spark's `to_json` (`JacksonGenerator`), null fields are omitted, nulls in lists and maps are
kept, bytes are base64, and NaN and infinities are quoted names. Unlike in Spark, times keep their
microseconds and are always in UTC.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pyrocket.arrow_types import bytes_of
from pyspark_pyrocket.json.base64_columns import encode_column, with_nulls_of

_SHORT = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r"}
_QUOTE, _BACKSLASH, _SPACE = 0x22, 0x5C, 0x20
_TEXT = pa.string()


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.StringArray:
    """Return one JSON object for each row, its fields in the order of `names`."""
    quoted = _string(pa.array(names, _TEXT)).to_pylist()
    pieces = [
        _joined(f"{name}:", json_text(column)) for name, column in zip(quoted, columns, strict=True)
    ]
    if not pieces:
        return pa.repeat(pa.scalar("{}"), rows)
    inside = pc.binary_join_element_wise(*_never_all_null(pieces), ",", null_handling="skip")
    return _joined("{", inside, "}")


def _never_all_null(pieces: list[pa.StringArray]) -> list[pa.StringArray]:
    """Add an empty piece to rows without any piece: Arrow would return null for these rows."""
    if not all(piece.null_count for piece in pieces):
        return pieces
    nothing = reduce(pc.and_, (piece.is_null() for piece in pieces))
    return [pc.if_else(nothing, "", pieces[0]), *pieces[1:]]


def json_text(column: pa.Array) -> pa.StringArray:
    """Return each value as JSON; null stays null.

    Raises TypeError for a type that JSON cannot represent.
    """
    column = _common_form(column)
    for is_kind, encode in _ENCODERS:
        if is_kind(column.type):
            return encode(column)
    raise TypeError(f"{column.type} cannot be written as JSON")


def _common_form(column: pa.Array) -> pa.Array:
    """Cast dictionaries, views and large types to the plain Arrow type of the same values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _common_form(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(_TEXT)
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_list(kind):
        return column.cast(pa.list_(kind.value_field))
    return column


def _joined(*parts: str | pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _plain(column: pa.Array) -> pa.StringArray:
    return column.cast(_TEXT)


def _float(column: pa.Array) -> pa.StringArray:
    text = column.cast(_TEXT)
    # Arrow omits the point of whole numbers, so that readers would take them for integers.
    whole = pc.equal(pc.floor(column), column)
    if pc.any(whole).as_py():
        whole = pc.and_(whole, pc.invert(pc.match_substring(text, "e")))
        text = pc.if_else(whole, _joined(text, ".0"), text)
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is not False:
        return text
    name = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    return pc.if_else(finite, text, pc.if_else(pc.is_nan(column), '"NaN"', name))


def _string(column: pa.StringArray) -> pa.StringArray:
    return _joined('"', _escaped(column), '"')


def _escaped(column: pa.StringArray) -> pa.StringArray:
    """Return the strings escaped as JSON, in one pass for each special character that occurs."""
    data = bytes_of(column)
    # Backslashes are escaped first, because the other escapes add backslashes.
    signs = [_BACKSLASH] if (data == _BACKSLASH).any() else []
    signs += [_QUOTE] if (data == _QUOTE).any() else []
    signs += np.unique(data[data < _SPACE]).tolist()
    for sign in signs:
        column = pc.replace_substring(column, chr(sign), _escape(sign))
    return column


def _escape(sign: int) -> str:
    if sign in (_QUOTE, _BACKSLASH):
        return f"\\{chr(sign)}"
    return f"\\{_SHORT[sign]}" if sign in _SHORT else f"\\u{sign:04X}"


def _timestamp(column: pa.Array) -> pa.StringArray:
    if column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    text = pc.replace_substring(column.cast(_TEXT), " ", "T", max_replacements=1)
    return _joined('"', text, '"')


def _struct(column: pa.StructArray) -> pa.StringArray:
    names = [field.name for field in column.type]
    return with_nulls_of(column, json_objects(names, column.flatten(), len(column)))


def _list(column: pa.ListArray) -> pa.StringArray:
    return _in_brackets("[", column, json_text(column.flatten()).fill_null("null"), "]")


def _map(column: pa.MapArray) -> pa.StringArray:
    pairs = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
    # `from_arrays` rejects a mask if the offsets are a slice: concatenation makes a copy.
    offsets = pa.concat_arrays([column.offsets, column.offsets[:0]])
    lists = pa.ListArray.from_arrays(offsets, pairs, mask=column.is_null())
    keys, values = lists.flatten().flatten()
    texts = _joined(_name(keys), ":", json_text(values).fill_null("null"))
    return _in_brackets("{", lists, texts, "}")


def _name(keys: pa.Array) -> pa.StringArray:
    """Return the keys of maps as strings of JSON: values that are strings in JSON, as they are."""
    text = json_text(keys)
    is_string = pc.starts_with(text, '"')
    return text if pc.all(is_string).as_py() else pc.if_else(is_string, text, _string(text))


def _in_brackets(
    before: str, lists: pa.ListArray, texts: pa.StringArray, after: str
) -> pa.StringArray:
    """Return each list as JSON in brackets; `texts` contains the JSON of each element."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return with_nulls_of(lists, _joined(before, joined, after))


_ENCODERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _plain),
    (pa.types.is_floating, _float),
    (pa.types.is_boolean, _plain),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, lambda column: _joined('"', column.cast(_TEXT), '"')),
    (pa.types.is_decimal, _plain),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (pa.types.is_map, _map),
    (pa.types.is_binary, lambda column: _joined('"', encode_column(column), '"')),
    (pa.types.is_null, _plain),
)
