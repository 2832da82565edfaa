"""The directory tree of a store, walked without following symbolic links.

A user with write access to the directory could replace a file with a link. The next writer would
then overwrite or delete the link's target, which the user may not be allowed to change. Therefore a
path below a store's root is opened one folder at a time, each relative to the descriptor of its
parent (openat), and links are rejected with an error that names them (STORE_LINKED).

The path of the store itself may contain links. The folders commitlog, consumequeue and index may be
links if link and target are owned by the store's owner, because RocketMQ can be configured to keep
them on another disk (`storePathCommitLog`, `storePathConsumeQueue`, `storePathIndex`).

Descriptors of folders are not kept open, because a store would then need more descriptors.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyrocket.disk.os_errors import linked
from pyrocket.errors import StoreDamagedError

_PASS = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags for opening a folder on the path without listing it."""

_LIST = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY
_LINK_ERRORS = errno.ENOTDIR, errno.ELOOP, errno.EMLINK
_MAY_BE_LINKS = ("commitlog", "consumequeue", "index")
_FIXED = ("abort", "checkpoint", "config", "lock", "pyrocket", "timerlog", "timerwheel")

_roots: set[str] = set()


def protect(root: Path) -> None:
    """Start to protect paths below the root of a store, as described above."""
    _roots.add(os.fspath(root))


@contextmanager
def entered(path: str | Path) -> Iterator[tuple[int | None, str]]:
    """Yield a descriptor of the parent folder of `path`, and the name of `path` in it.

    Yields None and the path itself if the path is directly in a store's root or not below one. An
    OSError raised in the context gets the full path.
    """
    path = os.fspath(path)
    at = _root_length(path)
    folder, _, name = path.rpartition("/")
    if at < 0 or len(folder) <= at:
        yield None, path
        return
    descriptor = _walk(folder, at, _PASS)
    try:
        yield descriptor, name
    except OSError as error:
        if error.filename == name:
            error.filename = path
        raise
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(path: str | Path) -> Iterator[int]:
    """Yield a descriptor of a folder, for listing or syncing it."""
    path = os.fspath(path)
    at = _root_length(path)
    is_plain = at < 0 or path in _roots
    descriptor = os.open(path, _LIST) if is_plain else _walk(path, at, _LIST)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def links_of(root: Path, *, everywhere: bool) -> Iterator[Path]:
    """Yield the forbidden links in a store, without following links.

    Searches the fixed names at the top, and the folders `config`, `pyrocket` and `timerlog`; with
    `everywhere` also the log, the queues and the key index.
    """
    for name in _FIXED + _MAY_BE_LINKS:
        path = root / name
        if path.is_symlink() and (name in _FIXED or _is_refused(path)):
            yield path
        elif everywhere or name in _FIXED:
            yield from _links_below(path)


def _is_refused(folder: Path) -> bool:
    """Whether a folder at the top is a forbidden link."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError), opened_folder(folder):
            return False
    except StoreDamagedError:
        return True
    return False


def _links_below(top: Path) -> Iterator[Path]:
    folders = [top]
    while folders:
        folder = folders.pop()
        with suppress(FileNotFoundError, NotADirectoryError), listed(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_symlink():
                    yield folder / entry.name
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(folder / entry.name)


@contextmanager
def listed(folder: str | Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Yield the entries of `os.scandir` for a folder. Their `path` attribute is only the name."""
    with opened_folder(folder) as descriptor, os.scandir(descriptor) as entries:
        yield entries


def _root_length(path: str) -> int:
    """Return the length of the path of the store that contains `path`; -1 outside of stores."""
    at = len(path)
    while at > 0:
        if path[:at] in _roots:
            return at
        at = path.rfind("/", 0, at)
    return -1


def _walk(path: str, at: int, flags: int) -> int:
    """Open the folder `path` below the root path[:at] with `flags`; return its descriptor."""
    first, *parts = path[at + 1 :].split("/")
    at += 1 + len(first)
    descriptor = _open_first(path[:at], flags if not parts else _PASS)
    for number, part in enumerate(parts, 1):
        above, at = descriptor, at + 1 + len(part)
        try:
            descriptor = os.open(
                part, (flags if number == len(parts) else _PASS) | os.O_NOFOLLOW, dir_fd=above
            )
        except OSError as error:
            error.filename = path[:at]
            raise
        finally:
            os.close(above)
    return descriptor


def _open_first(path: str, flags: int) -> int:
    """Open a folder at the top of a store, which may be a link created by the owner."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in _LINK_ERRORS or not os.path.islink(path):
            raise
    root, _, name = path.rpartition("/")
    owner = os.stat(root).st_uid
    before, target, after = os.lstat(path), os.readlink(path), os.lstat(path)
    # A link's target never changes, so `target` is that of the checked link.
    is_owners = _identity(before) == _identity(after) and before.st_uid == owner
    if name not in _MAY_BE_LINKS or not is_owners:
        raise linked(path)
    descriptor = os.open(os.path.join(root, target), flags)
    if os.fstat(descriptor).st_uid != owner:
        os.close(descriptor)
        raise linked(path)
    return descriptor


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_ctime_ns
