"""Keys of appended messages that are not in the key index yet: one file that all writers share.

Adding a batch to an index file costs a pass over its slots, 20 MB in RocketMQ's default size, for
a thousand messages as for a hundred thousand. So each append only notes its keys, after those of
the previous append of any process, and they are added together (`IndexBuilder`). The file is
crash-safe: notes become valid only when the header that counts them is written, and the header is
cleared before notes are overwritten. A writer that dies or fails leaves notes that end too early;
the next append sees that they do not reach its start and starts over, and the keys in between are
indexed from the log.
"""

import os
from pathlib import Path

from pyrocket.disk import io
from pyrocket.formats.pending_keys import (
    HEADER_BYTES,
    NOTE_BYTES,
    NotesHeader,
    decode_notes,
    note_position,
)
from pyrocket.index.keys.key_items import KeyItems

MAX_NOTES = 512 * 1024
"""12 MiB. An append with more keys is left to the log."""

_NOTHING = NotesHeader(0, 0, 0)


class PendingKeys:
    """The noted keys of one store. Writing needs the write lock, reading does not."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self._path, self._writable = path, writable
        self._descriptor: int | None = None
        self._last = _NOTHING

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> None:
        """Delete the file. Needs the store exclusively."""
        self.close()
        self._last = _NOTHING
        io.unlink(self._path)

    def header(self) -> NotesHeader:
        """Return the header; an empty one if it is missing or invalid. Raises OSError."""
        try:
            found = NotesHeader.decode(os.pread(self._file(), HEADER_BYTES, 0))
        except FileNotFoundError:
            return _NOTHING
        return found if found is not None and found.total <= MAX_NOTES else _NOTHING

    def add(
        self, start: int, end: int, notes: bytes, *, keep: bool, max_notes: int = MAX_NOTES
    ) -> int:
        """Note all keys of the log's [start, end); return how many notes there are now.

        Older notes are dropped unless `keep`, they end at `start`, and there is room for both.
        Raises OSError.
        """
        # If our own last notes end at `start`, no other process has appended or noted since.
        known = self._last if self._last.end == start else self.header()
        count = len(notes) // NOTE_BYTES
        if not keep or known.end != start or known.total + count > max_notes:
            known = NotesHeader(start, start, 0)
            io.write_at(self._file(), known.encode(), 0)
        grown, self._last = NotesHeader(known.start, end, known.total + count), _NOTHING
        io.write_at(self._file(), notes, note_position(known.total))
        io.write_at(self._file(), grown.encode(), 0)
        self._last = grown
        return grown.total

    def items(self, header: NotesHeader) -> KeyItems | None:
        """Return the notes that `header` counts; None if they were overwritten. Raises OSError."""
        length = header.total * NOTE_BYTES
        data = os.pread(self._file(), length, note_position(0)) if length else b""
        now = self.header()
        if len(data) < length or now.start != header.start or now.total < header.total:
            return None
        notes = decode_notes(data)
        return KeyItems(notes[:, 2], notes[:, 0], notes[:, 1])

    def _file(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT if self._writable else os.O_RDONLY
            self._descriptor = io.open_file(self._path, flags)
        return self._descriptor
