"""RocketMQ's JSON: what fastjson 1.x pretty-prints, integer keys without quotes.

Python's parser refuses such keys, so they are quoted before parsing; fastjson reads quoted and
unquoted keys alike. Output: one TAB per level, `"key":value`, bean fields sorted by name, no
newline at the end. Maps with integer keys and lists of plain values go on one line; such a map
still ends with a line break: `{0:5,1:7⏎}`. Source: `RemotingSerializable.toJson(pretty)`,
fastjson's `MapSerializer` and `CollectionCodec`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

PARSE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""The errors of parsing a text that is not JSON, or not a table."""


def describe_error(error: Exception) -> str:
    """Return a readable description of an error of `PARSE_ERRORS`."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing" if error.args else "something is missing"
    if isinstance(error, AttributeError | TypeError):
        return "it is JSON, but with values of the wrong type, such as a list for an object"
    return str(error)


# An unterminated string extends to the end of the file: starting again at each of its quotes would
# take quadratic time.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|(?<=[{,\s])(-?\d+)(?=\s*:)', re.DOTALL)


def loads(text: str) -> Any:
    """Parse; integer keys are returned as strings of digits. Raises ValueError.

    Only tables with integer keys are not JSON; they take seven times as long.
    """
    try:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return json.loads(_TOKEN.sub(_quote_key, text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _quote_key(match: re.Match[str]) -> str:
    return f'"{match[1]}"' if match[1] else match[0]


def int_keys(table: Mapping[str, Any]) -> dict[int, int]:
    """Return a map of integers for `dumps`. Raises ValueError, TypeError, OverflowError."""
    return {int(key): java_long(table[key]) for key in table}


def text_keys(table: Mapping[int, Any]) -> dict[str, Any]:
    """Return a map with its keys as text."""
    return {str(key): value for key, value in table.items()}


def java_long(value: Any) -> int:
    """Return an integer of 64 bits. Raises ValueError, TypeError, OverflowError."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} is not a number of 64 bits")
    return number


_PLAIN = {str, int, float, bool, type(None)}


def dumps(value: Any, level: int = 0) -> str:
    """Return the text; dict keys that are ints are written without quotes."""
    if isinstance(value, dict):
        return _map(value, level)
    if isinstance(value, list):
        return _list(value, level)
    return json.dumps(value, ensure_ascii=False)


def _map(value: dict[Any, Any], level: int) -> str:
    if value and all(map(_is_flat, value.values())) and set(map(type, value)) == {str}:
        return _table(value, level)
    members = [f"{_key(key)}:{dumps(item, level + 1)}" for key, item in value.items()]
    if members and all(isinstance(key, int) for key in value):
        return "{" + ",".join(members) + _line(level) + "}"
    return _block("{", "}", members, level)


def _is_flat(value: Any) -> bool:
    """Whether a value is a bean of plain values, such as one topic's."""
    return (
        type(value) is dict
        and set(map(type, value)) == {str}
        and set(map(type, value.values())) <= _PLAIN
    )


def _table(value: dict[str, dict[str, Any]], level: int) -> str:
    """Return the text of a map of flat beans, of which there may be ten thousand.

    The C encoder, ten times as fast, writes all of it with separators that contain line breaks.
    Line breaks in strings are escaped, so those of separators show where beans begin and end.
    """
    bean, inner = _line(level + 1), _line(level + 2)
    text = json.JSONEncoder(ensure_ascii=False, separators=(f",{inner}", ":\n")).encode(value)
    text = text.replace(":\n{", f":{{{inner}").replace(":\n", ":")
    text = text.replace(f"}},{inner}", f"{bean}}},{bean}")
    return f"{{{bean}{text[1:-2]}{bean}}}{_line(level)}}}"


def _key(key: object) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def _list(value: list[Any], level: int) -> str:
    items = [dumps(item, level + 1) for item in value]
    if any(isinstance(item, dict | list) for item in value):
        return _block("[", "]", items, level)
    return "[" + ",".join(items) + "]"


def _block(opening: str, closing: str, items: list[str], level: int) -> str:
    if not items:
        return opening + closing
    inner = _line(level + 1)
    return opening + inner + ("," + inner).join(items) + _line(level) + closing


def _line(level: int) -> str:
    return "\n" + "\t" * level
