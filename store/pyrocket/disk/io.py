"""File operations: all writes to a store use these functions, where tests inject faults.

Files are written with pwrite only: on a full disk, writing to the mapping of a sparse file kills
the process, while pwrite returns ENOSPC. Symbolic links below a store's root are not followed
(`tree`), and only regular files are opened.

Small files are replaced atomically (`replace_file`): readers, and recovery after a crash, see
either the old content or the new content.
"""

import errno
import logging
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.os_errors import naming_obstacles, wrong_kind
from pyrocket.disk.tree import entered, opened_folder
from pyrocket.errors import StoreDamagedError, StoreUnavailableError


def data_from(path: Path, offset: int) -> int:
    """Return the position of the first data at or after `offset`; the file's length without data.

    Returns `offset` if the file system does not report holes.
    """
    with io.opened(path, os.O_RDONLY) as descriptor:
        try:
            return os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            at_end = error.errno == errno.ENXIO
            return max(offset, os.fstat(descriptor).st_size) if at_end else offset


class HoleCache:
    """Finds the next hole in a file; caches it, because the system call is slow on tmpfs.

    Accessing a hole of a full tmpfs through a mapping raises SIGBUS. Cached positions stay valid
    because holes are never punched into files.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def length(self, descriptor: int, offset: int, length: int) -> int:
        """Return the number of bytes from `offset` up to the next hole, at most `length`."""
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        first, last = self._known.get(file, (offset, offset))
        if not first <= offset <= last:
            first = last = offset
        if last < offset + length:
            last = _hole_from(descriptor, last)
            self._known[file] = first, last
        return min(length, last - offset)


def _hole_from(descriptor: int, offset: int) -> int:
    """Return the start of the next hole; the file's length if none is reported."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_HOLE)
    except OSError:
        return max(offset, os.fstat(descriptor).st_size)


_log = logging.getLogger(__name__)
_OF_FILES = stat.S_IRGRP | stat.S_IWGRP
_OF_FOLDERS = stat.S_IRWXG | stat.S_ISGID
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK
"""Without O_NONBLOCK, opening a FIFO waits for its other end."""


@naming_obstacles
def open_file(path: str | Path, flags: int) -> int:
    """Open a regular file and return its descriptor; O_CREAT in `flags` creates a missing file.

    Raises StorePermissionError, and StoreDamagedError (STORE_LINKED, STORE_FILE_KIND) if the path
    is not a regular file.
    """
    with entered(path) as (folder, name):
        descriptor = os.open(name, flags | _SAFELY, 0o666, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise wrong_kind(path)
            os.set_blocking(descriptor, True)
            if flags & os.O_CREAT:
                _share_with_group(descriptor, os.path.dirname(path) if folder is None else folder)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


@contextmanager
def opened(path: str | Path, flags: int) -> Iterator[int]:
    """Yield the descriptor of a file, opened as by `open_file`; close it afterwards."""
    descriptor = open_file(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`."""
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


class SyncError(OSError):
    """An fsync failed. Pages may be lost even if a second fsync succeeds."""


def sync(descriptor: int) -> None:
    """Flush the file's data."""
    os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Flush the data of a file that is not open here."""
    with io.opened(path, os.O_RDONLY) as descriptor:
        io.sync(descriptor)


def sync_or_fail(descriptor: int) -> None:
    """Flush the file's data. Raises SyncError; the caller then marks the store as failed."""
    try:
        sync(descriptor)
    except OSError as error:
        raise SyncError(*error.args) from error


@naming_obstacles
def sync_directory(path: Path) -> None:
    """Flush a folder after files in it were created, renamed or deleted."""
    with opened_folder(path) as descriptor:
        os.fsync(descriptor)


@naming_obstacles
def rename(source: Path, target: Path) -> None:
    """Rename a file or folder; replaces an existing file."""
    with entered(source) as (folder, name), entered(target) as (target_folder, target_name):
        try:
            os.rename(name, target_name, src_dir_fd=folder, dst_dir_fd=target_folder)
        except OSError as error:
            error.filename, error.filename2 = str(source), str(target)
            raise


def link(source: Path, target: Path) -> None:
    """Create a hard link to a file on the same file system."""
    with entered(source) as (folder, name), entered(target) as (target_folder, target_name):
        try:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise wrong_kind(source)
            os.link(
                name,
                target_name,
                src_dir_fd=folder,
                dst_dir_fd=target_folder,
                follow_symlinks=False,
            )
        except OSError as error:
            error.filename, error.filename2 = str(source), str(target)
            raise


@naming_obstacles
def unlink(path: Path) -> None:
    """Delete a file or a link, if it exists."""
    with suppress(FileNotFoundError), entered(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


@naming_obstacles
def remove_directory(path: Path) -> None:
    """Delete an empty folder. Raises FileNotFoundError, OSError if it is not empty."""
    with entered(path) as (folder, name):
        os.rmdir(name, dir_fd=folder)


@naming_obstacles
def clear_directory(path: Path) -> None:
    """Delete everything in a folder. Links are deleted, but not their targets.

    Works through descriptors. The contents of subfolders are moved up first, so that the depth of
    the tree does not matter.
    """
    with opened_folder(path) as top:
        try:
            while names := os.listdir(top):
                for name in names:
                    if stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                        _empty(name, top)
                    else:
                        os.unlink(name, dir_fd=top)
        except OSError as error:
            error.filename = f"{path}/{error.filename}"
            raise


def _empty(name: str, top: int) -> None:
    """Move the contents of a folder into its parent `top`, and delete the folder."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            os.rename(inner, uuid.uuid4().hex, src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def remove_tree(path: Path) -> None:
    """Delete a folder with everything in it: see `clear_directory`."""
    clear_directory(path)
    remove_directory(path)


def set_length(descriptor: int, length: int) -> None:
    """Set the length of a new file; unwritten parts are holes."""
    os.ftruncate(descriptor, length)


@naming_obstacles
def set_time(path: Path, ms: int) -> None:
    """Set a file's modification time (epoch ms), or the current time for another user's file."""
    with entered(path) as (folder, name):
        try:
            times = ms * 1_000_000, ms * 1_000_000
            os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
        except PermissionError:
            os.utime(name, dir_fd=folder, follow_symlinks=False)


@naming_obstacles
def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of a store's root."""
    if path.stat().st_mode & 0o7777 != mode:
        path.chmod(mode)


def drop_cached(descriptor: int) -> None:
    """Drop a file's cached pages, so that reads return what is on disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@naming_obstacles
def make_directory(path: Path) -> None:
    """Create a folder and its parents durably if they are missing."""
    if path.is_dir() or path == path.parent:
        return
    make_directory(path.parent)
    try:
        with entered(path) as (folder, name):
            os.mkdir(name, dir_fd=folder)
    except FileExistsError as error:
        if not path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)
            ) from error
    with opened_folder(path) as made:
        _share_with_group(made, path.parent)
    sync_directory(path.parent)


def _share_with_group(made: int, folder: int | str | Path) -> None:
    """Give the folder's group access to a new file or folder in it.

    In a folder with the set-group-id bit, new files have the folder's group, but their permissions
    depend on the umask: with 022 only the creator could write them. The umask still determines the
    permissions of others.
    """
    given = os.stat(folder).st_mode
    if not given & stat.S_ISGID:
        return
    status = os.fstat(made)
    passed_on = given & (_OF_FOLDERS if stat.S_ISDIR(status.st_mode) else _OF_FILES)
    mode = stat.S_IMODE(status.st_mode | passed_on)
    if mode != stat.S_IMODE(status.st_mode) and status.st_uid == os.geteuid():
        os.fchmod(made, mode)


SMALL_FILE_BYTES = 64 * 1024
MAX_FILE_BYTES = 512 * 1024 * 1024
"""Maximum size of a file that is read at once. A table of 10,000 topics has 2 MB, and one of 10^6
group offsets 60 MB.
"""


def replace_file(path: Path, data: bytes, scratch: Path, *, backup: bool = False) -> None:
    """Replace the content of `path` with `data`, durably.

    With `backup`, the old content is saved as `<name>.bak`, as in RocketMQ. Raises
    StoreUnavailableError (STORE_FILE_FULL), and changes nothing, if the file could not be read
    again.
    """
    if len(data) > MAX_FILE_BYTES:
        raise StoreUnavailableError(
            f"{path} would have {len(data)} bytes; the maximum is {MAX_FILE_BYTES}.",
            remedy="Delete topics and consumer groups that are no longer used.",
            code="STORE_FILE_FULL",
        )
    make_directory(path.parent)
    make_directory(scratch)
    if backup and (before := read_or_none(path)) is not None:
        install_file(path.with_name(path.name + ".bak"), scratch, [(0, before)])
    install_file(path, scratch, [(0, data)])


def install_file(
    path: Path,
    scratch: Path,
    parts: Iterable[tuple[int, bytes]],
    *,
    length: int = 0,
    time_ms: int = 0,
    before_rename: Callable[[int], None] = lambda descriptor: None,
    fails_store: bool = False,
) -> None:
    """Create or replace a file, which is complete and durable before it appears at `path`.

    `parts` are pairs of position and bytes. The file has at least `length` bytes; unwritten parts
    are holes. Its modification time is `time_ms` (epoch ms) unless that is 0. After an OSError, no
    file remains in `scratch`. With `fails_store`, a failed fsync raises SyncError.
    """
    draft = scratch / f"{path.name}.{uuid.uuid4().hex}"
    descriptor = open_file(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    try:
        try:
            if length:
                set_length(descriptor, length)
            for position, data in parts:
                write_at(descriptor, data, position)
            # Otherwise a power loss could leave an incomplete file at `path`.
            (sync_or_fail if fails_store else sync)(descriptor)
            before_rename(descriptor)
        finally:
            os.close(descriptor)
        if time_ms:
            set_time(draft, time_ms)
        rename(draft, path)
    except OSError:
        unlink(draft)
        raise
    sync_directory(path.parent)


def read_or_none(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """Return the content of a file; None if it is missing.

    Raises StorePermissionError, and StoreDamagedError if it is not a file (STORE_LINKED,
    STORE_FILE_KIND) or longer than `max_bytes`, including holes (STORE_FILE_SIZE).
    """
    with suppress(FileNotFoundError), io.opened(path, os.O_RDONLY) as descriptor:
        try:
            length = os.fstat(descriptor).st_size
            check_file_size(path, length, max_bytes)
            return os.pread(descriptor, length, 0)
        except OSError as error:
            error.filename = str(path)
            raise
    return None


def read_hint(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """Return the content of a file that the store works without.

    Returns None, and logs a warning, if it is too long or not a file. Raises StorePermissionError.
    """
    try:
        return read_or_none(path, max_bytes)
    except StoreDamagedError as error:
        _log.warning("%s is ignored: %s", path, error.message)
        return None


def check_file_size(path: Path, length: int, max_bytes: int) -> None:
    """Raise StoreDamagedError (STORE_FILE_SIZE) if a file is longer than files of its kind."""
    if length > max_bytes:
        raise StoreDamagedError(
            f"{path} has {length} bytes; a file of its kind has at most {max_bytes}.",
            remedy="Restore it from a backup, or move it away; `pyrocket verify` then reports what"
            " is missing.",
            code="STORE_FILE_SIZE",
        )
