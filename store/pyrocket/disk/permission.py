"""Who may use a store: modes for users that share one, and errors that say what is in the way.

A folder with the set-group-id bit belongs to a group. What is made in it is the group's, which the
kernel sees to, and the group may do with it what it may do with the folder, which the kernel does
not see to: a umask of 022 would make files that only their maker can write. What others may do is
left to the umask.

What keeps a process from a file is named: permissions, or a folder in the place of a file and the
other way round.
"""

import functools
import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from pyrocket.errors import StoreDamagedError, StorePermissionError

P = ParamSpec("P")
R = TypeVar("R")

_WRONG_KINDS = (IsADirectoryError, NotADirectoryError)
_OF_FILES = stat.S_IRGRP | stat.S_IWGRP
_OF_FOLDERS = stat.S_IRWXG | stat.S_ISGID


def share_with_group(made: int | Path, folder: str | Path) -> None:
    """Let the folder's group use what was made in it: a file's descriptor, or a folder's path."""
    given = os.stat(folder).st_mode
    if not given & stat.S_ISGID:
        return
    status = os.stat(made)
    passed_on = given & (_OF_FOLDERS if stat.S_ISDIR(status.st_mode) else _OF_FILES)
    mode = stat.S_IMODE(status.st_mode | passed_on)
    if mode != stat.S_IMODE(status.st_mode) and status.st_uid == os.geteuid():
        os.chmod(made, mode)


def naming_obstacles(operation: Callable[P, R]) -> Callable[P, R]:
    """Have an operation's OSError say what is in the way, and the way out: see `raise_obstacle`."""

    @functools.wraps(operation)
    def named(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return operation(*arguments, **options)
        except (PermissionError, *_WRONG_KINDS) as error:
            raise_obstacle(error)
            raise

    return named


def raise_obstacle(error: OSError) -> None:
    """Raise StorePermissionError for a PermissionError, StoreDamagedError for a wrong kind of file.

    Nothing for another error.
    """
    if isinstance(error, StorePermissionError):
        raise error
    if isinstance(error, PermissionError):
        raise permission_denied(error) from error
    if isinstance(error, _WRONG_KINDS) and (told := error.filename2 or error.filename):
        raise _wrong_kind(Path(os.path.abspath(os.fsdecode(told)))) from error


def _wrong_kind(path: Path) -> StoreDamagedError:
    """Return the error that names the folder in a file's place, or the file in a folder's."""
    place = next((each for each in reversed(path.parents) if not each.is_dir()), path)
    what, wanted = ("folder", "file") if place.is_dir() else ("file", "folder")
    return StoreDamagedError(
        f"{place} is a {what}; a store has a {wanted} there.",
        remedy="Move it away; `pyrocket verify` says what is missing then.",
        code="STORE_FILE_KIND",
    )


def permission_denied(error: PermissionError) -> StorePermissionError:
    """Return the error that names the user, the file or folder in the way, and its owner."""
    who = f"user {_name(pwd.getpwuid, os.geteuid())}"
    remedy = (
        "Run as the store's owner, or share the store with a group of both: chgrp -R GROUP STORE;"
        " chmod -R g+rwX STORE; find STORE -type d -exec chmod g+s {} +"
    )
    if not error.filename:
        return StorePermissionError(f"{who} may not do this: {error.strerror}.", remedy=remedy)
    place = _in_the_way(Path(os.path.abspath(os.fsdecode(error.filename))))
    return StorePermissionError(f"{who} may not use {place}: {_owned(place)}.", remedy=remedy)


def _in_the_way(path: Path) -> Path:
    """Return the first folder on the way that this user may not enter; else what is there."""
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
    """Return the name of a user or group; its number where it has none, as in a container."""
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)
