"""The items of the key index, one per key of each message: of a run of the log, or still pending.

The keys of a message are its UNIQ_KEY, then the words of its KEYS; rolled-back messages have none.
Half and delayed messages are indexed under the topic in which they are stored. Source:
`IndexService.buildIndex`.

The slots of keys are scattered over an index file: adding a few thousand keys reads and writes most
pages of its slots, 20 MB in RocketMQ's default size, and adding many more costs little more. So
each append only adds its keys to a file that all writers share, and `IndexBuilder` adds the pending
keys of many appends to the index together.

The file is crash-safe: keys become valid when the header with their number is written, and the
header is cleared before keys are overwritten. If a writer is killed or fails, the last messages of
the log have no pending keys. The next append detects this and starts over; the keys in between are
indexed from the log.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pyrocket.disk import io
from pyrocket.formats.arrow_buffers import Ints, to_text
from pyrocket.formats.index_file import (
    PENDING_HEADER_BYTES,
    PENDING_KEY_BYTES,
    PendingHeader,
    decode_pending_keys,
    pending_key_position,
)
from pyrocket.formats.message_keys import MessageKeys, keys_of_batch
from pyrocket.formats.properties import KEYS, UNIQ_KEY
from pyrocket.formats.record import SYS_ROLLBACK, SYS_TRANSACTION_MASK
from pyrocket.formats.record_fields import RecordFields


@dataclass(frozen=True)
class KeyItems:
    """Key hashes, log offsets and store times (ms), one element per item, in log order."""

    hashes: Ints
    offsets: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, rows: slice) -> "KeyItems":
        return KeyItems(self.hashes[rows], self.offsets[rows], self.times[rows])


def key_items(run: RecordFields) -> KeyItems:
    """Return the items of the records. Raises StoreDamagedError if a record is damaged."""
    run.check_structure()
    keys = _keys_of_records(run)
    return KeyItems(keys.hashes, run.physical_offset[keys.rows], run.store_timestamp[keys.rows])


def _keys_of_records(run: RecordFields) -> MessageKeys:
    topics, properties = run.topics.dictionary_encode(), run.property_columns
    names = to_text(topics.dictionary)
    keys = keys_of_batch(
        names[0].as_py() if len(names) == 1 else names.take(topics.indices),
        *(properties.column(name) for name in (UNIQ_KEY, KEYS)),
    )
    kept = (run.sys_flag[keys.rows] & SYS_TRANSACTION_MASK) != SYS_ROLLBACK
    return MessageKeys(keys.rows[kept], keys.hashes[kept])


MAX_PENDING_KEYS = 512 * 1024
"""12 MiB. The keys of a larger append are indexed from the log."""

_NOTHING = PendingHeader(0, 0, 0)


class PendingKeys:
    """The pending keys of one store. Writing needs the write lock; reading does not."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self._path, self._writable = path, writable
        self._descriptor: int | None = None
        self._last = _NOTHING

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> None:
        """Delete the file. The caller must hold the store lock exclusively."""
        self.close()
        self._last = _NOTHING
        io.unlink(self._path)

    def header(self) -> PendingHeader:
        """Return the header, or an empty header if it is missing or invalid. Raises OSError."""
        try:
            header = PendingHeader.decode(os.pread(self._file(), PENDING_HEADER_BYTES, 0))
        except FileNotFoundError:
            return _NOTHING
        return header if header is not None and header.total <= MAX_PENDING_KEYS else _NOTHING

    def add(
        self,
        start: int,
        end: int,
        entries: bytes,
        *,
        keep: bool,
        max_pending: int = MAX_PENDING_KEYS,
    ) -> int:
        """Add all keys of [start, end) of the log; return the number of pending keys.

        Earlier pending keys are kept if `keep` is set, they end at `start`, and there is room for
        the new ones; otherwise they are replaced. Raises OSError.
        """
        # If our own last keys end at `start`, no other process has appended since.
        known = self._last if self._last.end == start else self.header()
        count = len(entries) // PENDING_KEY_BYTES
        if not keep or known.end != start or known.total + count > max_pending:
            known = PendingHeader(start, start, 0)
            io.write_at(self._file(), known.encode(), 0)
        grown, self._last = PendingHeader(known.start, end, known.total + count), _NOTHING
        io.write_at(self._file(), entries, pending_key_position(known.total))
        io.write_at(self._file(), grown.encode(), 0)
        self._last = grown
        return grown.total

    def items(self, header: PendingHeader) -> KeyItems | None:
        """Return the keys described by `header`; None if they were overwritten. Raises OSError."""
        length = header.total * PENDING_KEY_BYTES
        data = os.pread(self._file(), length, pending_key_position(0)) if length else b""
        now = self.header()
        if len(data) < length or now.start != header.start or now.total < header.total:
            return None
        entries = decode_pending_keys(data)
        return KeyItems(entries[:, 2], entries[:, 0], entries[:, 1])

    def _file(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT if self._writable else os.O_RDONLY
            self._descriptor = io.open_file(self._path, flags)
        return self._descriptor
