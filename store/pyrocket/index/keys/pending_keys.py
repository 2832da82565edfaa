"""Keys of messages just appended, noted for the key index: one file that all writers share.

Putting a batch into an index file costs a pass over its slots, 20 MB as RocketMQ sizes them, for a
thousand messages as for a hundred thousand. So every append only notes its keys, behind those of
the append before, whoever made that, and they are put together (`IndexBuilder`). Nothing is ever
said that is not so: notes count once the header, written after them, says so, and the header is
made empty before others take their place. Whoever dies, or cannot write, leaves notes that end
too early; the next append sees that they do not reach up to it and begins anew, and what lies in
between is indexed from the log.
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
    """The notes of one store. Only whoever has the turn writes; anybody may read."""

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
        """Remove the file; only for whoever has the store alone."""
        self.close()
        self._last = _NOTHING
        io.unlink(self._path)

    def header(self) -> NotesHeader:
        """Return what is noted; nothing, of an empty range, where there is no whole header.

        Raises OSError.
        """
        try:
            found = NotesHeader.decode(os.pread(self._file(), HEADER_BYTES, 0))
        except FileNotFoundError:
            return _NOTHING
        return found if found is not None and found.total <= MAX_NOTES else _NOTHING

    def add(self, start: int, end: int, notes: bytes, *, keep: bool) -> int:
        """Note all keys of the log's [start, end); return how many notes there are now.

        Older notes go unless they are to be kept, reach up to `start` and are not too many. Raises
        OSError.
        """
        # Where our own notes end, nobody has appended since, so nobody has noted anything.
        known = self._last if self._last.end == start else self.header()
        count = len(notes) // NOTE_BYTES
        if not keep or known.end != start or known.total + count > MAX_NOTES:
            known = NotesHeader(start, start, 0)
            io.write_at(self._file(), known.encode(), 0)
        grown, self._last = NotesHeader(known.start, end, known.total + count), _NOTHING
        io.write_at(self._file(), notes, note_position(known.total))
        io.write_at(self._file(), grown.encode(), 0)
        self._last = grown
        return grown.total

    def items(self, header: NotesHeader) -> KeyItems | None:
        """Return what `header` says is noted; None if other notes have taken its place meanwhile.

        Raises OSError.
        """
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
