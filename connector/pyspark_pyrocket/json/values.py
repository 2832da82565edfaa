"""Converts values of a JSON parser to values of a Spark type, as `from_json` does. Pure.

As in `JacksonParser.makeConverter`, a token has to be of the type, so 1.5 and "1" are not BIGINT; a
string accepts any token, as its text.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from pyspark.sql import types


class JsonNumber(str):
    """A number as it is written in the body."""

    __slots__ = ()


class Whole(JsonNumber):
    """A number without decimal point and exponent."""

    __slots__ = ()


class MismatchError(Exception):
    """A token that is not a value of the type."""


_LONGEST = 20
"""The length of the longest BIGINT, in characters."""

_DECIMAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_BITS: dict[types.DataType, int] = {
    types.ByteType(): 8,
    types.ShortType(): 16,
    types.IntegerType(): 32,
    types.LongType(): 64,
}
_NOT_NUMBERS = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
_EXACT = Context(prec=1000)
_TIME = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?:(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?)?\s*(?P<zone>\S+)?)?)?)?)?"
)
_USUAL = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{3}|\.\d{6})?Z?", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_MAX_SECONDS = (1 << 43) - 1

DECODER = json.JSONDecoder(parse_float=JsonNumber, parse_int=Whole, parse_constant=JsonNumber)
"""Keeps numbers as text, because their conversion depends on the requested type."""


def atom_reader(kind: types.DataType) -> Callable[[Any], Any]:
    """Return the function that converts a JSON value to a type other than struct, list and map.

    It raises MismatchError.
    """
    if isinstance(kind, types.DecimalType):
        return partial(_decimal, kind=kind)
    if isinstance(kind, types.StringType):
        return text_of  # With any collation.
    if kind in _BITS:
        return partial(_whole, most=(1 << (_BITS[kind] - 1)) - 1)
    return _ATOMS[kind]


def text_of(value: Any) -> str:
    """Return a JSON value as text: strings without quotes, everything else as compact JSON."""
    if isinstance(value, str):
        # A lone surrogate cannot be encoded as UTF-8; Java writes the same character instead.
        return str(value).encode("utf-8", "replace").decode()
    return _json_of(value)


def _json_of(value: Any) -> str:
    """Return compact JSON. A loop, because deep values would need a deep stack."""
    pieces: list[str] = []
    stack: list[tuple[Iterator[tuple[str, Any]], str]] = [(iter([("", value)]), "")]
    while stack:
        members, end = stack[-1]
        for before, item in members:
            pieces.append(before)
            if isinstance(item, dict | list):
                pieces.append("{" if isinstance(item, dict) else "[")
                stack.append(_members(item))
                break
            pieces.append(_scalar(item))
        else:
            pieces.append(end)
            stack.pop()
    return "".join(pieces)


def _members(value: dict[str, Any] | list[Any]) -> tuple[Iterator[tuple[str, Any]], str]:
    """Return the members of an object or array, with the text before each, and the end."""
    if isinstance(value, list):
        return (("," if at else "", item) for at, item in enumerate(value)), "]"
    members = enumerate(value.items())
    return (("," * (at > 0) + f"{_scalar(key)}:", item) for at, (key, item) in members), "}"


def _scalar(value: Any) -> str:
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, str):
        return json.dumps(text_of(value), ensure_ascii=False)
    return json.dumps(value)


def _whole(value: Any, most: int) -> int:
    if value.__class__ is not Whole or len(value) > _LONGEST:
        raise MismatchError
    number = int(value)
    if not -most - 1 <= number <= most:
        raise MismatchError
    return number


def _float(value: Any) -> float:
    if isinstance(value, JsonNumber):
        return float(value)
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    raise MismatchError


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MismatchError
    return value


def _decimal(value: Any, kind: types.DecimalType) -> Decimal:
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
        raise MismatchError
    try:
        number = Decimal(value)
        if number and number.adjusted() >= kind.precision - kind.scale:
            raise MismatchError
        step = Decimal((0, (1,), -kind.scale))
        number = number.quantize(step, rounding=ROUND_HALF_UP, context=_EXACT)
    except DecimalException:
        raise MismatchError from None
    if number and number.adjusted() >= kind.precision - kind.scale:
        raise MismatchError
    return number


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, JsonNumber):
        raise MismatchError
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise MismatchError from None


def _date(value: Any) -> int:
    """Return days since 1970; text after the date is ignored."""
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        value = re.split("[ T]", value.strip(), maxsplit=1)[0]
    moment = _moment(_time(value))
    return int(moment.astype("datetime64[D]").astype(np.int64))


def _timestamp(value: Any) -> int:
    """Return microseconds since 1970; a whole number is in seconds; text without a zone is UTC."""
    if isinstance(value, JsonNumber):
        return _whole(value, _MAX_SECONDS) * 1_000_000
    quick = _usual(value)
    if quick is not None:
        return quick
    match = _time(value)
    moment = _moment(match)
    return int(moment.astype(np.int64)) - _ahead_of_utc(match["zone"], moment)


def _usual(value: Any) -> int | None:
    """Parse text in the most common form with Python's C library; return None for other forms."""
    if not isinstance(value, str) or _USUAL.fullmatch(value) is None:
        return None
    try:
        moment = datetime.fromisoformat(value.removesuffix("Z"))
    except ValueError:
        return None
    return (moment.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


def _timestamp_ntz(value: Any) -> int:
    match = _time(value)
    if match["zone"]:
        raise MismatchError
    return int(_moment(match).astype(np.int64))


def _time(value: Any) -> re.Match[str]:
    if not isinstance(value, str) or isinstance(value, JsonNumber):
        raise MismatchError
    match = _TIME.fullmatch(value.strip())
    if match is None:
        raise MismatchError
    return match


def _moment(match: re.Match[str]) -> np.datetime64:
    """Return the written time in microseconds, without its zone; numpy also supports year 0."""
    month, day, hour, minute, second = (
        int(match[name] or default)
        for name, default in (("month", 1), ("day", 1), ("hour", 0), ("minute", 0), ("second", 0))
    )
    fraction = ((match["fraction"] or "") + "000000")[:6]
    clock = f"{hour:02}:{minute:02}:{second:02}.{fraction}"
    try:
        return np.datetime64(f"{match['year']}-{month:02}-{day:02}T{clock}", "us")
    except ValueError:
        raise MismatchError from None


def _ahead_of_utc(zone: str | None, moment: np.datetime64) -> int:
    """Return the offset of a zone from UTC, in microseconds, at this local time."""
    if zone in (None, "Z", "z", "UTC", "GMT"):
        return 0
    match = _OFFSET.fullmatch(str(zone))
    try:
        if match is None:
            offset = moment.astype(datetime).replace(tzinfo=ZoneInfo(str(zone))).utcoffset()
        else:
            offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    except (ValueError, OSError, LookupError, AttributeError):
        raise MismatchError from None
    assert offset is not None
    return (-1 if match is not None and match[1] == "-" else 1) * (offset // _MICROSECOND)


_ATOMS: dict[types.DataType, Callable[[Any], Any]] = {
    types.BinaryType(): _binary,
    types.BooleanType(): _boolean,
    types.DateType(): _date,
    types.DoubleType(): _float,
    types.FloatType(): _float,
    types.TimestampNTZType(): _timestamp_ntz,
    types.TimestampType(): _timestamp,
}
