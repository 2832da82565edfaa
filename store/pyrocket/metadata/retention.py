"""How long a store keeps messages: `pyrocket/retention.json`, which every writer applies.

Without the file all messages are kept. The file is written when a store is created with a
retention, and by `Store.set_retention`. A writer that has the store open reloads the file at
intervals.
"""

from dataclasses import asdict
from typing import Any

from pyrocket.base.config import Retention
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.metadata.json_table import OwnFile

_REMEDY = (
    "Remove it, and set the retention again with `pyrocket store retention`: without the file all"
    " messages are kept."
)


class RetentionFile:
    """The file of one store. Each call reads the file."""

    def __init__(self, layout: Layout) -> None:
        self._file = OwnFile(layout.retention, layout.scratch, _parse, _REMEDY)

    def read(self) -> Retention | None:
        """Return the retention; None if all messages are kept. Raises StoreDamagedError."""
        return self._file.read()

    def keep(self, retention: Retention | None) -> None:
        """Set the retention, durably; None keeps all messages. Requires the write lock."""
        if retention is None:
            io.unlink(self._file.path)
            io.sync_directory(self._file.path.parent)
        else:
            self._file.save(asdict(retention))


def _parse(content: Any) -> Retention:
    return Retention(**{**content, "at_hours": tuple(content["at_hours"])})
