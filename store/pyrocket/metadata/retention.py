"""How long a store keeps messages: `pyrocket/retention.json`, which every writer applies.

Without the file all messages are kept. The file is written when a store is created with a
retention, and by `Store.set_retention`. A writer that has the store open reloads the file at
intervals.
"""

from dataclasses import asdict

from pyrocket.base.config import Retention
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.errors import OptionError, StoreDamagedError
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import PARSE_ERRORS, describe_error


class RetentionFile:
    """The file of one store. Each call reads the file."""

    def __init__(self, layout: Layout) -> None:
        self._path, self._scratch = layout.retention, layout.scratch

    def read(self) -> Retention | None:
        """Return the retention; None if all messages are kept. Raises StoreDamagedError."""
        data = io.read_or_none(self._path, io.SMALL_FILE_BYTES)
        if data is None:
            return None
        try:
            content = decode_own(self._path, data)
            return Retention(**{**content, "at_hours": tuple(content["at_hours"])})
        except (*PARSE_ERRORS, OptionError) as error:
            raise StoreDamagedError(
                f"{self._path} cannot be read: {describe_error(error)}.",
                remedy="Remove it, and set the retention again with `pyrocket store retention`:"
                " without the file all messages are kept.",
            ) from error

    def keep(self, retention: Retention | None) -> None:
        """Set the retention, durably; None keeps all messages. Requires the write lock."""
        if retention is None:
            io.unlink(self._path)
            io.sync_directory(self._path.parent)
        else:
            io.replace_file(self._path, encode_own(self._path, asdict(retention)), self._scratch)
