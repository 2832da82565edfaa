"""RocketMQ's JSON: the pretty-printed output of fastjson 1.x, with unquoted integer keys.

Python's parser rejects unquoted keys, so they are quoted before parsing; fastjson accepts both. The
same holds for keys that are objects, such as queues in answers of brokers.
Output: one TAB per level, `"key":value`, bean fields sorted by name, no newline at the end. Maps
with integer keys and lists of plain values are on one line, but such a map ends with a line break:
`{0:5,1:7⏎}`. Source: `RemotingSerializable.toJson(pretty)`, fastjson's `MapSerializer` and
`CollectionCodec`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

PARSE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""The errors of parsing a text that is not JSON or not a table."""


def describe_error(error: Exception) -> str:
    """Return a human-readable description of one of the `PARSE_ERRORS`."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error}"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing" if error.args else "something is missing"
    if isinstance(error, AttributeError | TypeError):
        return "it is JSON, but with values of the wrong type, such as a list for an object"
    return str(error)


# An unterminated string extends to the end of the file; a retry at each of its quotes would take
# quadratic time.
_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"?'
    r"|(?<=[{,\s])(-?\d+)(?=\s*:)"
    r'|(?<=[{,])(\{[^{}"]*(?:"[^"\\]*"[^{}"]*)*\})(?=:)',
    re.DOTALL,
)


def loads(text: str) -> Any:
    """Parse a text; integer keys are returned as strings of digits. Raises ValueError.

    Keys that are objects without objects are returned as their text: brokers answer with maps of
    queues. A text with such keys, which is not JSON, takes seven times as long.
    """
    try:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return json.loads(_TOKEN.sub(_quote_key, text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _quote_key(match: re.Match[str]) -> str:
    if match[1]:
        return f'"{match[1]}"'
    return json.dumps(match[2]) if match[2] else match[0]


def int_keys(table: Mapping[str, Any]) -> dict[int, int]:
    """Return a map of integers for `dumps`. Raises ValueError, TypeError, OverflowError."""
    return {int(key): java_long(table[key]) for key in table}


def text_keys(table: Mapping[int, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in table.items()}


def java_long(value: Any) -> int:
    """Return a value as a 64-bit integer. Raises ValueError, TypeError, OverflowError."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} exceeds 64 bits")
    return number


_PLAIN = {str, int, float, bool, type(None)}


def dumps(value: Any, level: int = 0) -> str:
    """Return the text of a value; integer keys are not quoted."""
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
    """Whether a value is a bean of plain values, such as the entry of a topic."""
    return (
        type(value) is dict
        and set(map(type, value)) == {str}
        and set(map(type, value.values())) <= _PLAIN
    )


def _table(value: dict[str, dict[str, Any]], level: int) -> str:
    """Return the text of a map of flat beans, possibly ten thousand.

    The C encoder, which is ten times as fast, writes everything with separators that contain line
    breaks. Line breaks in strings are escaped, so line breaks show where beans begin and end.
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


def parse_java_long(text: str | None) -> int | None:
    """Return the result of Java's `Long.parseLong`, -1 if it fails, None for None."""
    if text is None:
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return -1
    return int(text)
