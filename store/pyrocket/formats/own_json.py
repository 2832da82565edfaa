"""Our own small files: JSON with a checksum, which RocketMQ's have not.

    {"crc32": 1559483150, "content": {"timed": 7}}

A flipped bit in a number is still JSON, and a cursor that is too large would lose messages. The
checksum is of `content` with sorted keys and nothing but a space behind `,` and `:`. Files of
earlier versions are the content alone.
"""

import json
from typing import Any

from pyrocket.formats.checksum import crc32

_CRC, _CONTENT = "crc32", "content"


def encode_own(content: Any) -> bytes:
    """Return the file that says this."""
    # Keys that are numbers become text before they are sorted.
    text = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    return f'{{"{_CRC}": {crc32(text.encode())}, "{_CONTENT}": {text}}}'.encode()


def decode_own(data: bytes) -> Any:
    """Return what a file says. Raises ValueError if that is not what was written."""
    try:
        known = json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(known, dict) or not {_CRC, _CONTENT} & known.keys():
        return known
    if known.keys() != {_CRC, _CONTENT} or known[_CRC] != _sum(known[_CONTENT]):
        raise ValueError("it does not fit its checksum")
    return known[_CONTENT]


def _sum(content: Any) -> int:
    return crc32(json.dumps(content, sort_keys=True).encode())
