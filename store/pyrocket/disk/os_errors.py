"""Translates errors of the operating system into errors of pyrocket, with a remedy.

`translating_os_errors` is for the boundary of an operation on a store: it translates all OSErrors.
`translating` does the same for reads by a public function. `naming_obstacles` is for operations
below the boundary whose callers handle some errors, such as a missing file: it translates only
errors that callers do not handle.
"""

import errno
import functools
import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType, GeneratorType
from typing import Any, ParamSpec, TypeVar, cast

from pyrocket.errors import (
    PyrocketError,
    StoreDamagedError,
    StorePermissionError,
    StoreUnavailableError,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

NOT_WRITTEN = "{root} could not be written: {error}. Nothing was lost."
WRITE_FAILED = "a write to {root} failed: {error}. No part of the write is visible."

_PLACE = (
    "Check that path: a file is missing, or another file is in its place; restore the file, or move"
    " the other one away"
)
_FIRST = {
    errno.ENOSPC: "Free space",
    errno.EDQUOT: "Free space, or raise the quota",
    errno.EROFS: "Mount the file system for writing",
    errno.EIO: "Repair the disk",
    errno.EMFILE: "Allow the process more open files (`ulimit -n`)",
    errno.ENFILE: "Allow the machine more open files",
    errno.ENOMEM: (
        "Give the process more address space: spark.executor.pyspark.memory and `ulimit -v` limit"
        " it, and Python with pyarrow uses 1.4 GiB before it reads anything"
    ),
    errno.ENAMETOOLONG: "Use a shorter path for the store, or a shorter name",
    **dict.fromkeys((errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR), _PLACE),
}
_WRONG_KINDS = (
    *(errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EMLINK),
    *(errno.ENXIO, errno.EOPNOTSUPP),
)
"""Errors of opening a folder, a link that is not followed (on Linux, macOS and other BSDs), a FIFO
or device without its other end, or a socket."""

_KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@contextmanager
def translating_os_errors(
    root: str | Path,
    then: str,
    *,
    what: str = NOT_WRITTEN,
    code: str = "WRITE_FAILED",
    through: tuple[type[OSError], ...] = (),
) -> Iterator[None]:
    """Translate any OSError. `then` is what to do after repairing the cause.

    `what` is the error message; it contains {root} and {error}. Errors of the types in `through`
    are not translated. Raises StorePermissionError, StoreDamagedError (STORE_LINKED,
    STORE_FILE_KIND), and StoreUnavailableError with `code` for all other errors:

        with translating_os_errors(layout.root, "try again"):
            io.write_at(descriptor, data, 0)
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, through):
            raise
        raise translated(error, root, then, what=what, code=code) from error


def translated(
    error: OSError, root: str | Path, then: str, *, what: str, code: str
) -> PyrocketError:
    """Return pyrocket's error for an OSError: see `translating_os_errors`."""
    named = obstacle(error)
    if named is not None:
        return named
    message = what.format(root=root, error=error)
    return StoreUnavailableError(message, remedy=os_error_remedy(error, then), code=code)


def translating(operation: Callable[P, R]) -> Callable[P, R]:
    """Make a public function, or the generator that it returns, raise READ_FAILED for an OSError.

    Errors of writes have already been translated.
    """

    @functools.wraps(operation)
    def translating_it(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            result = operation(*arguments, **options)
        except OSError as error:
            raise _read_failed(error) from error
        if type(result) is GeneratorType:
            return cast(R, _translating(cast(Iterator[Any], result)))
        return result

    return translating_it


def translating_methods(face: type[T]) -> type[T]:
    """Wrap all public methods and properties of a class in `translating`."""
    for name, member in list(vars(face).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            setattr(face, name, translating(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(face, name, property(translating(member.fget), doc=member.__doc__))
    return face


def _translating(generator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from generator
    except OSError as error:
        raise _read_failed(error) from error


def _read_failed(error: OSError) -> PyrocketError:
    if isinstance(error, StorePermissionError):
        return error
    what = "the operating system failed to read: {error}."
    return translated(error, "", "try again", what=what, code="READ_FAILED")


def naming_obstacles(operation: Callable[P, R]) -> Callable[P, R]:
    """Make an operation raise the error that `obstacle` returns for an OSError, if any."""

    @functools.wraps(operation)
    def named(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return operation(*arguments, **options)
        except OSError as error:
            known = obstacle(error)
            if known is None or isinstance(error, PyrocketError):
                raise
            raise known from error

    return named


def obstacle(error: OSError) -> PyrocketError | None:
    """Return the error that describes what prevents access to a file; None for other errors.

    It describes a missing permission (StorePermissionError), a link (StoreDamagedError,
    STORE_LINKED), or a folder in place of a file or vice versa (STORE_FILE_KIND).
    """
    if isinstance(error, StorePermissionError):
        return error
    if isinstance(error, PermissionError):
        return permission_denied(error)
    if error.errno in _WRONG_KINDS and (path := error.filename2 or error.filename):
        return wrong_kind(os.fsdecode(path))
    return None


def linked(path: str | Path) -> StoreDamagedError:
    return StoreDamagedError(
        f"{path} is a symbolic link. In a store only the folders commitlog, consumequeue and index"
        " may be links, if link and target belong to the store's owner.",
        remedy="Find out who created it. Delete it, or replace it with its target.",
        code="STORE_LINKED",
    )


def os_error_remedy(error: OSError, then: str) -> str:
    """Return the remedy for an error, followed by `then`, such as "try again"."""
    first = _FIRST.get(error.errno or 0, "Free space or repair the disk")
    return f"{first}, then {then}."


def wrong_kind(path: str | Path) -> StoreDamagedError:
    """Return the error for a link or an unexpected kind of file at `path` or in its parents."""
    path = Path(os.path.abspath(path))
    place = next((parent for parent in reversed(path.parents) if not os.path.isdir(parent)), path)
    if os.path.islink(place):
        return linked(place)
    kind = "file"
    with suppress(OSError):
        kind = _KINDS.get(stat.S_IFMT(os.lstat(place).st_mode), kind)
    return StoreDamagedError(
        f"{place} is a {kind}; a store has a {'folder' if kind == 'file' else 'file'} there.",
        remedy="Move it away; `pyrocket verify` then reports what is missing.",
        code="STORE_FILE_KIND",
    )


def permission_denied(error: PermissionError) -> StorePermissionError:
    """Return an error with the user, the file or folder, and its owner."""
    who = f"user {_name(pwd.getpwuid, os.geteuid())}"
    remedy = (
        "Run as the store's owner, or share the store with a group of both users: "
        "chgrp -R GROUP STORE; chmod -R g+rwX STORE; find STORE -type d -exec chmod g+s {} +"
    )
    if not error.filename:
        return StorePermissionError(f"{who} may not do this: {error.strerror}.", remedy=remedy)
    place = _in_the_way(Path(os.path.abspath(os.fsdecode(error.filename))))
    return StorePermissionError(f"{who} may not use {place}: {_owned(place)}.", remedy=remedy)


def _in_the_way(path: Path) -> Path:
    """Return the first folder on the path that this user may not enter, or the path itself."""
    for folder in reversed(path.parents):
        if not os.access(folder, os.X_OK, effective_ids=_EFFECTIVE):
            return folder
    return path if os.path.lexists(path) else path.parent


_EFFECTIVE = os.access in os.supports_effective_ids


def _owned(path: Path) -> str:
    try:
        status = os.stat(path)
    except OSError as error:
        return str(error.strerror)
    owner = f"{_name(pwd.getpwuid, status.st_uid)}:{_name(grp.getgrgid, status.st_gid)}"
    return f"it belongs to {owner}, with the mode {stat.filemode(status.st_mode)}"


def _name(look_up: Callable[[int], tuple[object, ...]], number: int) -> str:
    """Return the name of a user or group, or its id if it has no name, as in a container."""
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)
