"""A new index file: made whole and durable under another name, then renamed in."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path

from pyrocket.disk import io
from pyrocket.formats.index_file import IndexHeader

Made = Callable[[str, int], None]
"""Told the name and the inode of each file about to be there."""


def install(path: Path, length: int, header: IndexHeader, scratch: Path, made: Made | None) -> None:
    """Make the file at `path`, without items. Raises OSError, SyncError; nothing is left then."""
    io.make_directory(path.parent)
    io.make_directory(scratch)
    draft = scratch / f"{path.name}.{uuid.uuid4().hex}"
    descriptor = io.open_file(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    try:
        try:
            io.set_length(descriptor, length)
            io.write_at(descriptor, header.encode(), 0)
            _sync(descriptor)
            if made is not None:
                made(path.name, os.fstat(descriptor).st_ino)
        finally:
            os.close(descriptor)
        io.rename(draft, path)
    except OSError:
        io.unlink(draft)
        raise
    io.sync_directory(path.parent)


def _sync(descriptor: int) -> None:
    """Without this a power loss could leave the name with a file of no length."""
    try:
        io.sync(descriptor)
    except OSError as error:
        raise io.SyncError(*error.args) from error
