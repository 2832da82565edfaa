"""Reads the files that an administrator gives a broker: certificates, users, settings."""

import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pyrocket.base.rounds import Rounds
from pyrocket.errors import OptionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_log = logging.getLogger(__name__)
_LOOK_S = 1.0
_FAILED = "reloading failed, the previous configuration remains in use"

_Value = TypeVar("_Value")


def read_file(path: str, *, code: str) -> bytes:
    """Return the bytes of a file. Raises OptionError with this code."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"{path} cannot be read: {error.strerror}.", remedy="Name a readable file.", code=code
        ) from None


def read_toml(path: str, *, code: str) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises OptionError with this code."""
    try:
        return tomllib.loads(read_file(path, code=code).decode())
    except ValueError as error:
        raise OptionError(
            f"{path} is not valid TOML: {error}.", remedy="Correct the file.", code=code
        ) from None


def refuse_if_others_can_read(path: str, *, code: str) -> None:
    """Raise OptionError if other users of the machine may read or change a file with secrets.

    The members of this process's groups may, because a volume of Kubernetes belongs to a group.
    """
    try:
        status = os.stat(path)
    except OSError:
        return  # Reading the file later raises an error with the reason.
    who = "every user of this machine"
    if not status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        if not status.st_mode & (stat.S_IRGRP | stat.S_IWGRP):
            return
        if status.st_gid in (os.getegid(), *os.getgroups()):
            return
        who = f"the group {status.st_gid}, to which this process does not belong,"
    raise OptionError(
        f"{path} contains secrets, and {who} may read or change it.",
        remedy=f"Run: chmod 600 {path}",
        code=code,
    )


class WatchedFiles(Generic[_Value]):
    """A value read from some files, and reloaded when one of them changes."""

    def __init__(self, paths: list[str], read: Callable[[], _Value]) -> None:
        """Read the files. Raises the same errors as `read`."""
        self._paths, self._read = paths, read
        self._lock, self._looked = threading.Lock(), time.monotonic()
        self._rounds = Rounds(logging.ERROR)
        self._seen = self._look()
        self.value = read()

    def current(self) -> _Value:
        """Return the value; checks at most once a second whether the files have changed.

        While the changed files cannot be read or are invalid, the old value remains in use; the
        error is logged once, and the files are read again every second.
        """
        with self._lock:
            if time.monotonic() - self._looked > _LOOK_S:
                self._looked, now = time.monotonic(), self._look()
                if now != self._seen and self._rounds.run(_FAILED, self._reload):
                    self._seen = now
                    _log.info("reloaded: %s", ", ".join(self._paths))
            return self.value

    def _reload(self) -> None:
        self.value = self._read()

    def _look(self) -> list[tuple[int, ...] | None]:
        return [_fingerprint(path) for path in self._paths]


def _fingerprint(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode
