"""Compressed bodies: deflated by senders, stored as they come, inflated by readers.

sysFlag 0x001 says that a body is compressed and bits 0x700 how: none or 0x300 zlib (RFC 1950),
0x100 an LZ4 frame, 0x200 Zstandard. We write zlib at level 5, as RocketMQ's clients do from 4.9.4.
"""

import zlib

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

COMPRESSED_FLAGS = SYS_COMPRESSED | SYS_ZLIB
_CODECS = {SYS_LZ4: "lz4", SYS_ZSTD: "zstd"}


def deflate(body: bytes) -> bytes:
    """Return the body as a compressing client stores it."""
    return zlib.compress(body, COMPRESS_LEVEL)


def inflate(body: bytes, sys_flag: int) -> bytes:
    """Return the plain body of a record with this sysFlag. Raises StoreDamagedError."""
    if not sys_flag & SYS_COMPRESSED:
        return body
    codec = _CODECS.get(sys_flag & SYS_COMPRESSION_MASK)
    try:
        return _read_stream(body, codec) if codec else zlib.decompress(body)
    except (zlib.error, OSError) as error:
        raise StoreDamagedError(f"a compressed body does not inflate: {error}.") from error


def inflates(body: bytes, sys_flag: int) -> bool:
    """Return whether the body is whole."""
    try:
        inflate(body, sys_flag)
    except StoreDamagedError:
        return False
    return True


def _read_stream(body: bytes, codec: str) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        plain: bytes = stream.read()
        return plain
