"""RocketMQ's JSON: what fastjson 1.x pretty-prints, integer keys without quotes.

Python's parser refuses such keys, so they are quoted before parsing; fastjson reads quoted and
unquoted keys alike. Output: one TAB per level, `"key":value`, bean fields sorted by name, no
newline at the end. Source: `RemotingSerializable.toJson(pretty)`.
"""

import json
import re
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,\s])(-?\d+)(?=\s*:)')


def loads(text: str) -> Any:
    """Parse; integer keys come back as strings of digits. Raises ValueError."""
    return json.loads(_TOKEN.sub(_quote_key, text))


def _quote_key(match: re.Match[str]) -> str:
    return f'"{match[1]}"' if match[1] else match[0]


def dumps(value: Any, level: int = 0) -> str:
    """Return the text; dict keys that are ints are written without quotes."""
    if isinstance(value, dict):
        return _block("{", "}", [_member(key, value[key], level) for key in value], level)
    if isinstance(value, list):
        return _block("[", "]", [dumps(item, level + 1) for item in value], level)
    return json.dumps(value, ensure_ascii=False)


def _member(key: object, value: Any, level: int) -> str:
    name = str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)
    return f"{name}:{dumps(value, level + 1)}"


def _block(opening: str, closing: str, items: list[str], level: int) -> str:
    if not items:
        return opening + closing
    inner, outer = "\n" + "\t" * (level + 1), "\n" + "\t" * level
    return opening + inner + ("," + inner).join(items) + outer + closing
