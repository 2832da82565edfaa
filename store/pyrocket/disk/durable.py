"""Small files replaced whole: a reader sees the old text or the new one, a crash too."""

import os
import uuid
from pathlib import Path

from pyrocket.disk import io
from pyrocket.errors import StoreDamagedError

SMALL_FILE_BYTES = 64 * 1024
MAX_FILE_BYTES = 512 * 1024 * 1024
"""Of a file that is read whole: a table of 10,000 topics has 2 MB, of 10^6 group offsets 60 MB."""


def replace_file(path: Path, data: bytes, scratch: Path, *, backup: bool = False) -> None:
    """Make `data` the durable content of `path`.

    With `backup` the old content is kept as `<name>.bak`, where RocketMQ looks for it.
    """
    io.make_directory(path.parent)
    io.make_directory(scratch)
    if backup and (before := read_or_none(path)) is not None:
        _install(path.with_name(path.name + ".bak"), before, scratch)
    _install(path, data, scratch)


def _install(path: Path, data: bytes, scratch: Path) -> None:
    draft = scratch / f"{path.name}.{uuid.uuid4().hex}"
    descriptor = io.open_file(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        try:
            io.write_at(descriptor, data, 0)
            io.sync(descriptor)
        finally:
            os.close(descriptor)
        io.rename(draft, path)
    except OSError:
        io.unlink(draft)
        raise
    io.sync_directory(path.parent)


def read_or_none(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """Return the content, or None where there is no such file.

    Raises StorePermissionError, and StoreDamagedError where it is no file (STORE_LINKED,
    STORE_FILE_KIND) or has more than `max_bytes`, holes among them (STORE_FILE_SIZE).
    """
    try:
        descriptor = io.open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        length = os.fstat(descriptor).st_size
        check_file_size(path, length, max_bytes)
        return os.pread(descriptor, length, 0)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def check_file_size(path: Path, length: int, max_bytes: int) -> None:
    """Raise StoreDamagedError (STORE_FILE_SIZE) if a file is longer than its kind can be."""
    if length > max_bytes:
        raise StoreDamagedError(
            f"{path} has {length} bytes; a file of its kind has at most {max_bytes}.",
            remedy="Restore it from a backup, or move it away; `pyrocket verify` says what is"
            " missing then.",
            code="STORE_FILE_SIZE",
        )
