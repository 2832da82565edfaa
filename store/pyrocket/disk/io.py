"""The operations that change a disk, and nothing else: the seam where tests inject faults.

Every write to a store goes through these functions. Files are written with pwrite only: on a full
disk a store to a mapping of a sparse file kills the process, pwrite says ENOSPC.
"""

import errno
import os
import stat
from pathlib import Path

from pyrocket.disk.os_errors import naming_obstacles

_OF_FILES = stat.S_IRGRP | stat.S_IWGRP
_OF_FOLDERS = stat.S_IRWXG | stat.S_ISGID


@naming_obstacles
def open_file(path: str | Path, flags: int) -> int:
    """Open a file, made if `flags` say so; return its descriptor.

    Raises StorePermissionError, and StoreDamagedError (STORE_FILE_KIND) for a folder, which could
    be opened for reading: but one asks for that with O_DIRECTORY.
    """
    descriptor = os.open(path, flags, 0o666)
    try:
        if flags & os.O_CREAT:
            _share_with_group(descriptor, os.path.dirname(path))
        elif not flags & os.O_DIRECTORY and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`."""
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


class SyncError(OSError):
    """An fsync failed: the pages it was about may be gone, whatever a second one says."""


def sync(descriptor: int) -> None:
    """Make the file's data durable."""
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Make names made or removed in the folder durable."""
    descriptor = open_file(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@naming_obstacles
def rename(source: Path, target: Path) -> None:
    """Move a file into place, over what is there."""
    os.rename(source, target)


def link(source: Path, target: Path) -> None:
    """Give a file a second name on the same file system."""
    os.link(source, target)


@naming_obstacles
def unlink(path: Path) -> None:
    """Remove a name if it is there."""
    path.unlink(missing_ok=True)


def set_length(descriptor: int, length: int) -> None:
    """Give a new file its length; the part not written takes no space."""
    os.ftruncate(descriptor, length)


@naming_obstacles
def set_time(path: Path, ms: int) -> None:
    """Give a file the modification time `ms`, epoch milliseconds; another user's file has now."""
    try:
        os.utime(path, ns=(ms * 1_000_000, ms * 1_000_000))
    except PermissionError:
        os.utime(path)


@naming_obstacles
def set_mode(path: Path, mode: int) -> None:
    """Give a folder its permissions."""
    if path.stat().st_mode & 0o7777 != mode:
        path.chmod(mode)


def drop_cached(descriptor: int) -> None:
    """Forget what memory holds of a file, so that reading shows what the disk holds."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@naming_obstacles
def make_directory(path: Path) -> None:
    """Make a folder and its parents durable; no error if it is there."""
    if path.is_dir():
        return
    make_directory(path.parent)
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
    _share_with_group(path, path.parent)
    sync_directory(path.parent)


def _share_with_group(made: int | Path, folder: str | Path) -> None:
    """Let the folder's group use what was made in it: a file's descriptor, or a folder's path.

    A folder with the set-group-id bit belongs to a group, and so does what is made in it, which the
    kernel sees to. What the group may do with it the kernel leaves to the umask: one of 022 would
    make files that only their maker can write. What others may do is left to the umask here, too.
    """
    given = os.stat(folder).st_mode
    if not given & stat.S_ISGID:
        return
    status = os.stat(made)
    passed_on = given & (_OF_FOLDERS if stat.S_ISDIR(status.st_mode) else _OF_FILES)
    mode = stat.S_IMODE(status.st_mode | passed_on)
    if mode != stat.S_IMODE(status.st_mode) and status.st_uid == os.geteuid():
        os.chmod(made, mode)
