"""Compressed bodies: deflated by senders, stored as received, inflated by readers.

sysFlag 0x001 marks a compressed body, and bits 0x700 the method: none or 0x300 zlib (RFC 1950),
0x100 an LZ4 frame, 0x200 Zstandard. We write zlib at level 5, as RocketMQ's clients do from 4.9.4.
"""

import zlib
from importlib import import_module
from typing import Any

import pyarrow as pa

from pyrocket.config import COMPRESS_LEVEL
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_LZ4,
    SYS_ZLIB,
    SYS_ZSTD,
)

try:
    _inflater: Any = import_module("zlib_ng.zlib_ng")  # Up to five times as fast.
except ImportError:
    # Missing in a checkout or zip: zlib is slower and gives the same bytes.
    _inflater = zlib

MAX_INFLATED_BYTES = 128 * 1024 * 1024
"""Brokers can be configured for bodies over 4 MiB, but a damaged one must not fill the memory."""

_PIECE_BYTES = 1024 * 1024

COMPRESSED_FLAGS = SYS_COMPRESSED | SYS_ZLIB
LACKS_FLAG = "its sysFlag has a compression type, but not the compressed flag"
_CODECS = {SYS_LZ4: "lz4", SYS_ZSTD: "zstd"}


def deflate(body: bytes) -> bytes:
    """Return the body as a compressing client sends it."""
    return zlib.compress(body, COMPRESS_LEVEL)


def inflate(body: bytes, sys_flag: int) -> bytes:
    """Return the plain body of a record with this sysFlag. Raises StoreDamagedError."""
    if lacks_flag(body, sys_flag):
        raise StoreDamagedError(LACKS_FLAG)
    if not sys_flag & SYS_COMPRESSED:
        return body
    codec = _CODECS.get(sys_flag & SYS_COMPRESSION_MASK)
    try:
        plain = _read_stream(body, codec) if codec else _inflate_zlib(body)
    except (_inflater.error, OSError) as error:
        raise StoreDamagedError(f"a compressed body does not inflate: {error}.") from error
    if len(plain) > MAX_INFLATED_BYTES:
        raise StoreDamagedError(
            f"a compressed body of {len(body)} bytes inflates to more than {MAX_INFLATED_BYTES}."
        )
    return plain


def inflates(body: bytes, sys_flag: int) -> bool:
    """Return whether the body can be inflated completely."""
    try:
        inflate(body, sys_flag)
    except StoreDamagedError:
        return False
    return True


def lacks_flag(body: bytes, sys_flag: int) -> bool:
    """Return whether a compressed body's sysFlag has the method, but not the flag for compression.

    bodyCRC does not cover the sysFlag. From 4.9.4 on senders set both or neither; before, they set
    no method, and a lost flag cannot be detected.
    """
    if sys_flag & SYS_COMPRESSED or not sys_flag & SYS_COMPRESSION_MASK:
        return False
    return bool(body) and inflates(body, sys_flag | SYS_COMPRESSED)


def _read_stream(body: bytes, codec: str) -> bytes:
    """Return the plain body, truncated after MAX_INFLATED_BYTES.

    Reads into buffers: the memory of a failed `read` is never freed.
    """
    pieces, left = [], MAX_INFLATED_BYTES + 1
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while left and (piece := stream.read_buffer(min(left, _PIECE_BYTES))):
            pieces.append(piece)
            left -= piece.size
    return b"".join(pieces)


def _inflate_zlib(body: bytes) -> bytes:
    stream = _inflater.decompressobj()
    plain: bytes = stream.decompress(body, MAX_INFLATED_BYTES + 1)
    if not stream.eof and len(plain) <= MAX_INFLATED_BYTES:
        raise _inflater.error("it ends too early")
    return plain
