"""Small files replaced whole: a reader sees the old text or the new one, a crash too."""

import os
import shutil
import uuid
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.os_errors import naming_obstacles


def replace_file(path: Path, data: bytes, scratch: Path, *, backup: bool = False) -> None:
    """Make `data` the durable content of `path`.

    With `backup` the old content is kept as `<name>.bak`, where RocketMQ looks for it.
    """
    io.make_directory(path.parent)
    io.make_directory(scratch)
    if backup and path.exists():
        _install(path.with_name(path.name + ".bak"), path.read_bytes(), scratch)
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


def clear_folder(folder: Path) -> None:
    """Remove what is in a scratch folder; only for whoever has the store alone."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            io.unlink(entry)


@naming_obstacles
def read_or_none(path: Path) -> bytes | None:
    """Return the content, or None where there is no such file.

    Raises StorePermissionError, StoreDamagedError (STORE_FILE_KIND) where it is no file.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
