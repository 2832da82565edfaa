"""RocketMQ's `config/*.json`: each is a table in a file X, with its previous version in X.bak.

X is read first. If X is missing, empty (no bytes, or `{}`) or invalid, X.bak is used and a warning
is logged. If both are missing or empty, the table is empty. RocketMQ always writes the object that
contains the table, so a file without it is invalid. This follows `ConfigManager` with two
exceptions: nothing is deleted, and a file that cannot be parsed is never treated as an empty table.

Unknown fields, such as those of RocketMQ 5, are preserved when a table is changed.

Our own files, `pyrocket/*.json`, have a checksum instead of a backup: see `OwnFile`.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pyrocket.disk.io import read_or_none, replace_file
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import naming_obstacles
from pyrocket.errors import OptionError, StoreDamagedError
from pyrocket.formats import fastjson
from pyrocket.formats.checked_json import decode_own, encode_own

LOG = logging.getLogger("pyrocket")

BY_HAND = (
    "Restore it from a copy, or correct it by hand; without the file and its .bak the table is"
    " empty."
)
"""The remedy if neither the file nor its backup can be parsed."""

Content = dict[str, Any]
"""A table as parsed from the file; integer keys are strings of digits."""

_Table = TypeVar("_Table")

MISSING, EMPTY = "is missing", "is empty"


class JsonTable(Generic[_Table]):
    """One table of one store. `parse` converts its content to values, or raises.

    `required` is the key of the object that contains the table; with None any object is a table.
    """

    def __init__(
        self,
        layout: Layout,
        name: str,
        parse: Callable[[Content], _Table],
        *,
        required: str | None = None,
    ) -> None:
        self._scratch, self._path = layout.scratch, layout.config(name)
        self._backup = layout.config_backup(name)
        self._parse, self._required = parse, required
        self._warned_of: object = None

    def read(self) -> _Table:
        """Return the current table. Raises StoreDamagedError."""
        return self._load()[1]

    def faults(self) -> tuple[str, str]:
        """Return descriptions of the faults of the file and of its backup; empty if valid.

        Logs no warning. Raises StorePermissionError.
        """
        known = self._attempt(self._path), self._attempt(self._backup)
        main, backup = (attempt if isinstance(attempt, str) else "" for attempt in known)
        return main, backup

    def stamp(self) -> object:
        """Return a value that changes whenever the table changes; takes two stat calls."""
        return file_stamp(self._path), file_stamp(self._backup)

    def change(self, edit: Callable[[Content], bool], *, changed_at: int | None = None) -> None:
        """Read the table, `edit` its content, and replace it durably if `edit` returns True.

        The caller must hold the write lock. `changed_at`, in epoch milliseconds, advances
        `dataVersion`; it is passed for metadata, not for offsets.
        """
        content, _, sound = self._load()
        if not edit(content):
            return
        if changed_at is not None:
            version = _version(content)
            moved = {"counter": version["counter"] + 1, "timestamp": changed_at}
            content["dataVersion"] = {**version, **moved}
        # As in Java, characters that UTF-8 cannot encode become question marks.
        text = fastjson.dumps(dict(sorted(content.items()))).encode("utf-8", "replace")
        # An invalid file must not replace its valid backup.
        replace_file(self._path, text, self._scratch, backup=sound)

    def _load(self) -> tuple[Content, _Table, bool]:
        """Return the content, the values, and whether they come from the main file."""
        main = self._attempt(self._path)
        if not isinstance(main, str):
            return *main, True
        backup = self._attempt(self._backup)
        if not isinstance(backup, str):
            self._warn(f"{main}: using {self._backup.name}")
            return *backup, False
        if {main, backup} <= {MISSING, EMPTY}:
            if EMPTY in (main, backup):
                self._warn(f"{main}, and its backup {backup}: the table is empty")
            return {}, self._parse({}), False
        raise StoreDamagedError(f"{self._path} {main}, and its backup {backup}.", remedy=BY_HAND)

    def _attempt(self, path: Path) -> tuple[Content, _Table] | str:
        """Return the content and values of one file, or a description of its fault."""
        try:
            data = read_or_none(path)
        except StoreDamagedError as error:
            if error.code == "STORE_LINKED":
                raise
            return f"is not a file ({error.message})"
        if not data:
            return MISSING if data is None else EMPTY
        try:
            content = fastjson.loads(data.decode())
            if content == {}:
                return EMPTY
            _version(content)
            if self._required and not isinstance(content.get(self._required), dict):
                raise ValueError(f"it is JSON, but has no object {self._required!r}")
            return content, self._parse(content)
        except fastjson.PARSE_ERRORS as error:
            return f"cannot be parsed ({fastjson.describe_error(error)})"

    def _warn(self, what: str) -> None:
        """Log a warning once per state of the file."""
        if self._warned_of != (self.stamp(), what):
            self._warned_of = self.stamp(), what
            LOG.warning("%s %s.", self._path, what)


def _version(content: Content) -> Content:
    """Return a copy of `dataVersion`, which may be missing or null."""
    known = content.get("dataVersion")
    version = {"counter": 0} if known is None else {"counter": 0, **known}
    version["counter"] = int(version["counter"])
    return version


class OwnFile(Generic[_Table]):
    """One of our own files. `parse` converts its content to values, or raises.

    `remedy` is that of the error if the file is damaged.
    """

    def __init__(
        self, path: Path, scratch: Path, parse: Callable[[Any], _Table], remedy: str
    ) -> None:
        self.path, self._scratch, self._parse, self._remedy = path, scratch, parse, remedy

    def read(self) -> _Table | None:
        """Return the values; None if the file is missing. Raises StoreDamagedError."""
        data = read_or_none(self.path)
        try:
            return None if data is None else self._parse(decode_own(self.path, data))
        except (*fastjson.PARSE_ERRORS, OptionError) as error:
            raise StoreDamagedError(
                f"{self.path} cannot be parsed ({fastjson.describe_error(error)}).",
                remedy=self._remedy,
            ) from error

    def save(self, content: Any) -> None:
        """Replace the file durably."""
        replace_file(self.path, encode_own(self.path, content), self._scratch)

    def stamp(self) -> object:
        """Return a value that changes whenever the file changes."""
        return file_stamp(self.path)


@naming_obstacles
def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever a file is replaced; None if it is missing."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
