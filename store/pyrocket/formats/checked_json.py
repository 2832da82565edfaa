"""Our own small files: JSON with a version and, unlike RocketMQ's files, a checksum.

    {"crc32": 1421215926, "content": {"release": "0.1.0", "timed": 7, "version": 1}}

JSON with a flipped bit in a number is still valid, and a cursor that is too large would lose
messages. The checksum covers `content` with sorted keys and one space after `,` and `:`. The
earliest files consist of the content only. Content that is not an object has version 1
(`pyrocket.base.versions`).
"""

import json
import re
from pathlib import Path
from typing import Any

from pyrocket.base.versions import RELEASE, VERSIONS, check_version
from pyrocket.formats.checksum import crc32

_CRC, _CONTENT = "crc32", "content"
_VERSION, _RELEASE = "version", "release"
_HEAD = re.compile(rb'\{"crc32": ([0-9]{1,10}), "content": ')
_AT_END = re.compile(rb'"version": ([0-9]{1,9})\}\}\Z')
_END_BYTES = 64


def encode_own(path: Path, content: Any) -> bytes:
    """Encode the content of the file `path`.

    Adds version and release to an object. All keys must be text, because numbers would sort
    differently.
    """
    if isinstance(content, dict):
        content = {**content, _RELEASE: RELEASE, _VERSION: VERSIONS[path.name]}
    text = json.dumps(content, sort_keys=True)
    return f'{{"{_CRC}": {crc32(text.encode())}, "{_CONTENT}": {text}}}'.encode()


def decode_own(path: Path, data: bytes) -> Any:
    """Decode the content of the file `path`, without version and release.

    Raises ValueError if it is corrupt, UnsupportedError (STORE_NEWER).
    """
    content = _checked(data)
    if isinstance(content, dict):
        check_version(path, content.pop(_VERSION, 1), content.pop(_RELEASE, ""))
    return content


def check_own_version(path: Path, data: bytes) -> None:
    """Raise UnsupportedError (STORE_NEWER) if the file has a later version.

    Does not decode a file that has no version or ends with a known version.
    """
    if b'"version"' not in data:
        return
    known = _AT_END.search(data[-_END_BYTES:])
    if known and int(known[1]) <= VERSIONS[path.name]:
        return
    try:
        decode_own(path, data)
    except ValueError:
        return  # The file is corrupt; reading it will raise an error.


def _checked(data: bytes) -> Any:
    head = _HEAD.match(data)
    try:
        # In files that we write, the checksum is that of the content's text.
        if head and data[-1:] == b"}" and int(head[1]) == crc32(data[head.end() : -1]):
            return json.loads(data[head.end() : -1].decode())
        known = json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(known, dict) or not {_CRC, _CONTENT} & known.keys():
        return known
    text = json.dumps(known.get(_CONTENT), sort_keys=True)
    if known.keys() != {_CRC, _CONTENT} or known[_CRC] != crc32(text.encode()):
        raise ValueError("it does not match its checksum")
    return known[_CONTENT]
