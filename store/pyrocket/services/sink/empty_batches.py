"""Batches without rows: `pyrocket/sink/<32 hex digits>`, one file of a query.

Such a batch appends nothing, so the log cannot tell it from a batch that is missing. The file says
up to which number all batches since the last one with rows had none. One write overwrites it. While
the store is in use there is no fsync: a power failure may take the last notes. `unclean.json`
beside it says when one last happened: a gap after it need not be a loss. Nothing would say it of a
store at rest, so notes are durable then.
"""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pyrocket.clock import Clock
from pyrocket.disk import io
from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none, replace_file
from pyrocket.disk.layout import Layout, listed
from pyrocket.formats.checked_json import decode_own, encode_own
from pyrocket.formats.fastjson import BROKEN, in_words

_log = logging.getLogger(__name__)
_FILE_BYTES = 256
"""Every note has this length, so that one write replaces the one before."""

_NOTE = Path("empty.json")
"""The name of all notes in `pyrocket.versions`; on disk each is named by its query's key."""


@dataclass(frozen=True)
class EmptyNote:
    """after: the last batch with rows, -1 for none. last: the newest batch without rows."""

    after: int
    last: int
    time_ms: int


@dataclass(frozen=True)
class UncleanEnd:
    """When the machine last ended while the store was in use."""

    time_ms: int


_Note = TypeVar("_Note", EmptyNote, UncleanEnd)


class EmptyBatches:
    """The notes of one store. Reading and writing take no lock: a query has one file."""

    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._folder, self._scratch, self._clock = layout.sink_notes, layout.scratch, clock
        self._unclean, self._in_use = layout.unclean_end, layout.abort

    def of(self, key: str) -> EmptyNote | None:
        """Return the note of a query; one that cannot be read counts as missing."""
        return _read(self._folder / key, EmptyNote, _NOTE)

    def note(self, key: str, after: int, last: int) -> None:
        """Note that the batches up to `last` had no rows. Raises OSError."""
        note = EmptyNote(after, last, self._clock())
        data = encode_own(_NOTE, asdict(note)).ljust(_FILE_BYTES)
        io.make_directory(self._folder)
        descriptor = io.open_file(self._folder / key, os.O_WRONLY | os.O_CREAT)
        try:
            io.write_at(descriptor, data, 0)
            if not self._in_use.exists():
                io.sync(descriptor)
                io.sync_directory(self._folder)
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Make all notes durable, before the store is at rest. Raises OSError."""
        for path in listed(self._folder):
            descriptor = io.open_file(path, os.O_RDONLY)
            try:
                io.sync(descriptor)
            finally:
                os.close(descriptor)
        if self._folder.is_dir():
            io.sync_directory(self._folder)

    def forget(self, oldest_ms: int) -> None:
        """Remove notes made before; the caller is in a section."""
        for path in listed(self._folder):
            note = _read(path, EmptyNote, _NOTE) if path != self._unclean else None
            if note is not None and note.time_ms < oldest_ms:
                io.unlink(path)

    def note_unclean_end(self, time_ms: int) -> None:
        """Note durably that the machine ended while the store was in use. In a section.

        Not where no batch was ever noted: the folder of notes is durable before the first is made.
        """
        if not self._folder.is_dir():
            return
        data = encode_own(self._unclean, asdict(UncleanEnd(time_ms)))
        replace_file(self._unclean, data, self._scratch)

    def ended_uncleanly_since(self, time_ms: int) -> bool:
        """Whether the machine ended while the store was in use, at that time or later."""
        end = _read(self._unclean, UncleanEnd, self._unclean)
        return end is not None and end.time_ms >= time_ms


def _read(path: Path, kind: type[_Note], name: Path) -> _Note | None:
    data = read_or_none(path, SMALL_FILE_BYTES)
    if data is None:
        return None
    try:
        content = decode_own(name, data)
        content.pop("release", None)
        return kind(**{field: int(value) for field, value in content.items()})
    except BROKEN as error:
        _log.warning("%s is ignored: %s", path, in_words(error))
        return None
