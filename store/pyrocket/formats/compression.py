"""Compressed bodies: compressed by senders, stored as received, decompressed by readers.

sysFlag 0x001 marks a compressed body. The bits 0x700 are the method: 0 or 0x300 for zlib (RFC
1950), 0x100 for an LZ4 frame, 0x200 for Zstandard. We write zlib at level 5, as RocketMQ's clients
have done since 4.9.4.
"""

import zlib

import pyarrow as pa

from pyrocket.errors import MessageError, StoreDamagedError
from pyrocket.formats.checksum import fast_zlib
from pyrocket.formats.record import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
    SYS_LZ4,
    SYS_ZLIB,
    SYS_ZSTD,
)

COMPRESS_BODY_FROM_BYTES = 4096
"""Bodies of at least this many bytes are deflated, as RocketMQ's clients do."""

_LEVEL = 5
MAX_INFLATED_BYTES = 128 * 1024 * 1024
"""Brokers can be configured for bodies over 4 MiB, but a corrupt body must not fill the memory."""

_PIECE_BYTES = 1024 * 1024
_BODIES = 16

COMPRESSED_FLAGS = SYS_COMPRESSED | SYS_ZLIB
LACKS_FLAG = "its sysFlag has a compression type, but not the compressed flag"
_CODECS = {SYS_LZ4: "lz4", SYS_ZSTD: "zstd"}


def deflate(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def stored_body(body: bytes) -> tuple[bytes, int]:
    """Return a body as senders store it, and its sysFlag: compressed if that makes it shorter."""
    deflated = deflate(body) if len(body) >= COMPRESS_BODY_FROM_BYTES else body
    return (deflated, COMPRESSED_FLAGS) if len(deflated) < len(body) else (body, 0)


class LongBodyError(Exception):
    """A body is longer than the caller has allowed, although it may be valid."""


def inflate(body: bytes, sys_flag: int, longest: int | None = None) -> bytes:
    """Return the decompressed body of a record with this sysFlag.

    Raises StoreDamagedError, and LongBodyError if the body has more than `longest` bytes.
    """
    most = MAX_INFLATED_BYTES if longest is None else longest
    if lacks_flag(body, sys_flag):
        raise StoreDamagedError(LACKS_FLAG)
    if not sys_flag & SYS_COMPRESSED:
        return body
    codec = _CODECS.get(sys_flag & SYS_COMPRESSION_MASK)
    try:
        plain = _read_stream(body, codec, most) if codec else _inflate_zlib(body, most)
    except (fast_zlib.error, OSError) as error:
        raise StoreDamagedError(f"a compressed body does not inflate: {error}.") from error
    if len(plain) > most and longest is not None:
        raise LongBodyError
    if len(plain) > most:
        raise StoreDamagedError(
            f"a compressed body of {len(body)} bytes inflates to more than {MAX_INFLATED_BYTES}."
        )
    return plain


class Inflation:
    """Checks the compressed bodies of one request, without keeping what they inflate to."""

    def __init__(self, longest: int) -> None:
        """`longest` is the maximum length of a body; all bodies may have 16 times as much."""
        self._longest, self._left = longest, _BODIES * longest

    def check(self, body: bytes) -> None:
        """Raise MessageError (BODY_CORRUPT, BODY_TOO_LARGE) unless a zlib body is acceptable."""
        most = min(self._longest, self._left)
        length = inflated_bytes(body, most)
        if length is None:
            raise MessageError(
                "the compressed body does not inflate.",
                remedy="Compress it with zlib, as a client does.",
                code="BODY_CORRUPT",
            )
        self._left -= length
        if length > most:
            raise MessageError(
                f"the compressed body inflates to more than {self._longest} bytes, or all bodies of"
                f" the request to more than {_BODIES * self._longest}.",
                remedy="Send shorter or fewer messages at once, or raise max_message_bytes of the"
                " broker.",
                code="BODY_TOO_LARGE",
            )


def lacks_flag(body: bytes, sys_flag: int) -> bool:
    """Whether a compressed body's sysFlag has a compression method, but not the compressed flag.

    bodyCRC does not cover the sysFlag. Since 4.9.4 senders set both or neither. Earlier senders did
    not set the method, so a lost flag cannot be detected.
    """
    if sys_flag & SYS_COMPRESSED or not sys_flag & SYS_COMPRESSION_MASK:
        return False
    try:
        inflate(body, sys_flag | SYS_COMPRESSED)
    except StoreDamagedError:
        return False
    return bool(body)


def _read_stream(body: bytes, codec: str, most: int) -> bytes:
    """Return the decompressed body, truncated after `most` bytes and one more.

    Reads into buffers, because the memory of a failed `read` is never freed.
    """
    pieces, left = [], most + 1
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while left and (piece := stream.read_buffer(min(left, _PIECE_BYTES))):
            pieces.append(piece)
            left -= piece.size
    return b"".join(pieces)


def _inflate_zlib(body: bytes, most: int) -> bytes:
    stream = fast_zlib.decompressobj()
    plain: bytes = stream.decompress(body, most + 1)
    if not stream.eof and len(plain) <= most:
        raise fast_zlib.error("it ends too early")
    return plain


def inflated_bytes(body: bytes, most: int) -> int | None:
    """Return the length of a body compressed with zlib; None if it does not inflate.

    The body is inflated in parts, of which none is kept, and only until it has more than `most`
    bytes.
    """
    stream, length = fast_zlib.decompressobj(), 0
    try:
        while not stream.eof and length <= most:
            part = stream.decompress(body, _PIECE_BYTES)
            body, length = stream.unconsumed_tail, length + len(part)
            if not part and not body and not stream.eof:
                return None
    except fast_zlib.error:
        return None
    return length
