"""Parses strings as numbers by Java's rules, one at a time or as columns.

`Integer.valueOf`, `Long.valueOf` and `Double.valueOf` differ from Python and from Arrow. Java
rejects blanks around integers, and underscores. Java accepts a plus sign, a type suffix after a
double (`1.5f`), NaN and Infinity in exactly this spelling, and hexadecimal doubles. Doubles are
compared as by `Double.compare`: -0.0 is less than 0.0, and NaN is equal to itself and greater than
all other numbers.
"""

import math
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyrocket.filters.sql_tree import Number, ValueKind
from pyrocket.formats.arrow_buffers import Bools, text_bytes

_LIMITS = {"int": 2**31, "long": 2**63}
_WHOLE = re.compile(r"[+-]?\d{1,400}")
_DOUBLE = re.compile(
    r"""[\x00-\x20]*
        (?P<sign>[+-]?)
        (?: (?P<word>NaN|Infinity)
          | (?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?
          | (?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]? )
        [\x00-\x20]*""",
    re.VERBOSE,
)
_PLAIN_BYTES = np.isin(np.arange(256), np.frombuffer(b"-.0123456789", np.uint8))
"""If a column has no other bytes, Java accepts all strings that Arrow accepts, as equal numbers."""

_PLAIN = {
    "double": r"^-?[0-9]{1,30}(\.[0-9]{1,30})?$",
    "int": r"^-?[0-9]{1,18}$",
    "long": r"^-?[0-9]{1,18}$",
}
"""Strings that Arrow and Java parse alike: in practice nearly all numbers."""

Keys = npt.NDArray[np.int64]


def read_number(text: str, kind: ValueKind) -> int | float | None:
    """Return the number, or None if Java throws NumberFormatException."""
    return _read_double(text) if kind == "double" else _read_whole(text, _LIMITS[kind])


def _read_whole(text: str, limit: int) -> int | None:
    # Java reads UTF-16 code units: digits of all scripts, but only in the basic plane.
    if not _WHOLE.fullmatch(text) or max(text) > "\uffff":
        return None
    value = int(text)
    return value if -limit <= value < limit else None


def _read_double(text: str) -> float | None:
    match = _DOUBLE.fullmatch(text)
    if match is None:
        return None
    if match["hex"]:
        try:
            value = float.fromhex(match["hex"])
        except OverflowError:
            value = math.inf
    else:
        value = float(match["word"] or match["decimal"])
    return -value if match["sign"] == "-" else value


def order_key(value: int | float) -> tuple[bool, int | float, float]:
    """Return a key that sorts integers, or doubles, in Java's order."""
    if math.isnan(value):
        return True, 0, 0
    return False, value, math.copysign(1, value)


def compare_numbers(left: Number, right: Number) -> int:
    """Return -1, 0 or 1; if one number is a double, both are compared as doubles."""
    a, b = left.value, right.value
    if "double" in (left.kind, right.kind):
        a, b = float(a), float(b)
    return (order_key(a) > order_key(b)) - (order_key(a) < order_key(b))


def column_keys(texts: pa.StringArray, kind: ValueKind) -> tuple[Keys, Bools]:
    """Return the number of each string and whether the string is a number (shapes: the array's).

    Doubles are returned as integers with the order of `Double.compare`. Elements of nulls are
    arbitrary.
    """
    try:
        if _PLAIN_BYTES[text_bytes(texts)].all():
            return _cast(texts, kind)
    except pa.ArrowInvalid:
        pass
    keys, good = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN[kind]), False)
    rows = plain.to_numpy(zero_copy_only=False)
    keys[rows], good[rows] = _cast(texts.filter(plain), kind)
    _read_odd(texts, pc.and_not(pc.is_valid(texts), plain), kind, keys, good)
    return keys, good


def _cast(texts: pa.StringArray, kind: ValueKind) -> tuple[Keys, Bools]:
    """Return the same result with Arrow's parser. Raises pyarrow.ArrowInvalid."""
    if kind == "double":
        values = texts.cast(pa.float64()).fill_null(0).to_numpy()
        return double_keys(values), np.ones(len(texts), bool)
    keys = texts.cast(pa.int64()).fill_null(0).to_numpy()
    limit = _LIMITS[kind]
    return keys, (keys >= -limit) & (keys <= limit - 1)


def _read_odd(
    texts: pa.StringArray, odd: pa.BooleanArray, kind: ValueKind, keys: Keys, good: Bools
) -> None:
    """Parse rare spellings and strings that are not numbers, each distinct string once."""
    coded = texts.filter(odd).dictionary_encode()
    read = [read_number(text, kind) for text in coded.dictionary.to_pylist()]
    width: npt.DTypeLike = np.float64 if kind == "double" else np.int64
    numbers = np.array([0 if number is None else number for number in read], width)
    values = double_keys(numbers) if kind == "double" else numbers
    known = np.array([number is not None for number in read], bool)
    rows, which = odd.to_numpy(zero_copy_only=False), coded.indices.to_numpy()
    keys[rows], good[rows] = values[which], known[which]


def number_key(number: Number, kind: ValueKind) -> int:
    """Return the key of a number for comparison with a column of this kind."""
    if kind != "double":
        return int(number.value)
    return int(double_keys(np.array([number.value], np.float64))[0])


def double_keys(values: npt.NDArray[np.float64]) -> Keys:
    """Return integers in the order of `Double.compare`."""
    # NaN has many bit patterns; use a positive NaN.
    plain = np.where(np.isnan(values), np.nan, values)
    bits = np.abs(plain).view(np.int64)
    return np.where(np.signbit(plain), ~bits, bits)
