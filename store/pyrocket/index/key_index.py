"""The key index: a run of index files, the newest of which grows.

Only whoever has the turn appends. Nothing is remembered between batches: the files say themselves
how far they go. Source: `IndexService`.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.key_table import (
    Geometry,
    KeyHeader,
    is_table_name,
    key_hash,
    name_after,
    table_name,
)
from pyrocket.index.key_file import KeyFile
from pyrocket.index.key_items import KeyItems


class KeyIndex:
    """The index files of one store. Holds nothing open."""

    def __init__(self, layout: Layout, geometry: Geometry) -> None:
        self._folder, self._scratch = layout.index, layout.scratch
        self._geometry = geometry

    def names(self) -> list[str]:
        """Return the names of the files, oldest first; others in the folder are none of ours."""
        try:
            return sorted(filter(is_table_name, os.listdir(self._folder)))
        except FileNotFoundError:
            return []

    def path(self, name: str) -> Path:
        """Return where a file is."""
        return self._folder / name

    def open(self, name: str, *, writable: bool = False) -> KeyFile:
        """Open one file. Raises StoreDamagedError (KEY_INDEX_DAMAGED), FileNotFoundError."""
        return KeyFile(self.path(name), self._geometry, writable=writable)

    def header(self, name: str) -> KeyHeader:
        """Return the header of one file."""
        with self.open(name) as file:
            return file.header()

    def is_full(self, header: KeyHeader) -> bool:
        """Whether a file with this header is one that no longer changes."""
        return header.count >= self._geometry.items

    def end(self, trusted: int | None = None) -> int:
        """Return the log offset of the last record with items, some of which may be missing.

        All records before it are indexed. 0 without files. Only the first `trusted` files count.
        """
        names = self.names()[:trusted]
        return self.header(names[-1]).end_offset if names else 0

    def full_until(self) -> int:
        """Return the store time of the last item of the last full file, ms; 0 without one."""
        for name in reversed(self.names()):
            header = self.header(name)
            if self.is_full(header):
                return header.end_timestamp
        return 0

    def append(self, items: KeyItems, now_ms: int) -> None:
        """Append the items of consecutive records but for those that are there already.

        Java skips records before endPhyOffset; of the record there, which a dead writer may have
        left unfinished, we add what is missing.
        """
        items = items[self._known(items) :]
        while len(items):
            names = self.names()
            name = names[-1] if names else self._create(KeyHeader(), "", now_ms)
            with self.open(name, writable=True) as file:
                done = file.put(items)
                header = file.header()
            items = items[done:]
            if len(items):
                self._create(header, name, now_ms)

    def _known(self, items: KeyItems) -> int:
        """Return how many of the first items are in the files."""
        names = self.names()
        if not names or not len(items):
            return 0
        last = self.header(names[-1]).end_offset
        before = int(items.offsets.searchsorted(last))
        if before == len(items) or items.offsets[before] != last:
            return before
        of_last = int(items.offsets.searchsorted(last, side="right")) - before
        present = 0
        for name in reversed(names):
            with self.open(name) as file:
                trailing, count = file.trailing(last), file.header().count
            present += trailing
            if trailing < count - 1:
                break
        return before + min(present, of_last)

    def _create(self, previous: KeyHeader, previous_name: str, now_ms: int) -> str:
        """Make the file behind a full one, with whose end it begins; return its name."""
        name = table_name(now_ms)
        if name <= previous_name:
            name = name_after(previous_name)
        begin = KeyHeader(
            previous.end_timestamp,
            previous.end_timestamp,
            previous.end_offset,
            previous.end_offset,
        )
        io.make_directory(self._folder)
        io.make_directory(self._scratch)
        draft = self._scratch / f"{name}.{uuid.uuid4().hex}"
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        try:
            try:
                io.set_length(descriptor, self._geometry.file_bytes)
                io.write_at(descriptor, begin.encode(), 0)
            finally:
                os.close(descriptor)
            io.rename(draft, self.path(name))
        except OSError:
            io.unlink(draft)
            raise
        io.sync_directory(self._folder)
        return name

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, trusted: int | None = None
    ) -> Iterator[int]:
        """Yield log offsets of messages that may have the key, newest first, perhaps repeated.

        Others can have the same hash, and times are known to the second: compare with the record.
        Files that are cleaned away meanwhile are passed over. Raises StoreDamagedError.
        """
        wanted = key_hash(topic, key)
        names = self.names()[:trusted]
        for name in reversed(names):
            with suppress(FileNotFoundError), self.open(name) as file:
                header = file.header()
                over = name != names[-1] and header.end_timestamp < begin_ms
                if not over and header.begin_timestamp <= end_ms:
                    yield from file.candidates(wanted, begin_ms, end_ms)

    def remove_below(self, log_start: int) -> int:
        """Remove the leading files that only know records before `log_start`, never the last.

        Returns how many. The caller has the turn.
        """
        gone = []
        for name in self.names()[:-1]:
            if self.header(name).end_offset >= log_start:
                break
            gone.append(name)
        self._remove(gone)
        return len(gone)

    def cut(self, keep: int) -> None:
        """Remove all but the first `keep` files; the newest goes first."""
        self._remove(self.names()[keep:][::-1])

    def sound(self, log_end: int) -> int:
        """Return how many of the first files make sense for a log that ends at `log_end`."""
        before = 0
        for count, name in enumerate(self.names()):
            try:
                header = self.header(name)
            except StoreDamagedError:
                return count
            behind = header.count > 1 and header.end_offset >= log_end
            if header.end_offset < before or behind:
                return count
            before = header.end_offset
        return len(self.names())

    def durable(self, index_timestamp: int) -> int:
        """Return how many of the first files outlive a machine that stopped.

        A checkpoint names the store time of the last item of what was then the last full file,
        when all full files were durable. Store times never decrease, so a full file that ends
        before that time was among them. Of several that end at that time the first was. A file
        that is not full was not, whatever times it has. RocketMQ keeps all that end by then.
        """
        kept = 0
        with suppress(StoreDamagedError):
            for name in self.names():
                header = self.header(name)
                if not self.is_full(header) or header.end_timestamp > index_timestamp:
                    break
                kept += 1
                if header.end_timestamp == index_timestamp:
                    break
        return kept

    def sync(self) -> None:
        """Make all files durable. Raises SyncError."""
        for name in self.names():
            with self.open(name) as file:
                file.sync()

    def sync_full(self, since: int) -> int:
        """Make full files durable that end at the store time `since` (ms) or later.

        Returns the time at which the last full file ends, at least `since`. Files may be cleaned
        away meanwhile. Raises SyncError.
        """
        until = since
        for name in reversed(self.names()):
            with suppress(FileNotFoundError), self.open(name) as file:
                header = file.header()
                if header.end_timestamp < since:
                    break
                if self.is_full(header):
                    file.sync()
                    until = max(until, header.end_timestamp)
        return until

    def _remove(self, names: list[str]) -> None:
        for name in names:
            io.unlink(self.path(name))
        if names:
            io.sync_directory(self._folder)
