"""Compressed bodies: compressed by senders, stored as received, decompressed by readers.

sysFlag 0x001 marks a compressed body. The bits 0x700 are the method: 0 or 0x300 for zlib (RFC
1950), 0x100 for an LZ4 frame, 0x200 for Zstandard. We write zlib at level 5, as RocketMQ's clients
have done since 4.9.4.
"""

import zlib
from importlib import import_module
from typing import Any

import pyarrow as pa

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
    # Missing in a checkout or zip: zlib is slower and returns the same bytes.
    _inflater = zlib

COMPRESS_BODY_FROM_BYTES = 4096
"""Bodies of at least this many bytes are deflated, as RocketMQ's clients do."""

_LEVEL = 5
MAX_INFLATED_BYTES = 128 * 1024 * 1024
"""Brokers can be configured for bodies over 4 MiB, but a corrupt body must not fill the memory."""

_PIECE_BYTES = 1024 * 1024

COMPRESSED_FLAGS = SYS_COMPRESSED | SYS_ZLIB
LACKS_FLAG = "its sysFlag has a compression type, but not the compressed flag"
_CODECS = {SYS_LZ4: "lz4", SYS_ZSTD: "zstd"}


def deflate(body: bytes) -> bytes:
    """Compress a body as a client does."""
    return zlib.compress(body, _LEVEL)


def stored_body(body: bytes) -> tuple[bytes, int]:
    """Return a body as senders store it, and its sysFlag: compressed if that makes it shorter."""
    deflated = deflate(body) if len(body) >= COMPRESS_BODY_FROM_BYTES else body
    return (deflated, COMPRESSED_FLAGS) if len(deflated) < len(body) else (body, 0)


def inflate(body: bytes, sys_flag: int) -> bytes:
    """Return the decompressed body of a record with this sysFlag. Raises StoreDamagedError."""
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
    """Whether the body can be decompressed completely."""
    try:
        inflate(body, sys_flag)
    except StoreDamagedError:
        return False
    return True


def lacks_flag(body: bytes, sys_flag: int) -> bool:
    """Whether a compressed body's sysFlag has a compression method, but not the compressed flag.

    bodyCRC does not cover the sysFlag. Since 4.9.4 senders set both or neither. Earlier senders did
    not set the method, so a lost flag cannot be detected.
    """
    if sys_flag & SYS_COMPRESSED or not sys_flag & SYS_COMPRESSION_MASK:
        return False
    return bool(body) and inflates(body, sys_flag | SYS_COMPRESSED)


def _read_stream(body: bytes, codec: str) -> bytes:
    """Return the decompressed body, truncated after MAX_INFLATED_BYTES.

    Reads into buffers, because the memory of a failed `read` is never freed.
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
