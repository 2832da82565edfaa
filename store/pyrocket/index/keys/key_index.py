"""The key index: a sequence of index files. Items are appended to the newest file.

Appending needs the write lock. Source: `IndexService`.

Each file has all keys from its first record to its last. The log shows whether keys are missing
between two files. RocketMQ leaves such gaps: after an unclean shutdown it deletes files and
continues from its recovery offset, before our lock rejects it. `IndexCoverage` finds the valid
files: those that together cover the log from its start without a gap, with begin and end times that
agree with the log.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import takewhile
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.os_errors import naming_obstacles
from pyrocket.disk.tree import listed
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.index_file import Geometry, IndexHeader, is_table_name, name_after, table_name
from pyrocket.formats.record import BLANK_BYTES, read_header
from pyrocket.index.keys.index_file import SLACK_MS, IndexFile, IndexFileInfo, inspect
from pyrocket.index.keys.key_items import KeyItems, key_items
from pyrocket.index.keys.key_search import KeySearch
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, record_missing, run_at

Created = Callable[[str, int], None]
"""Called with the name and the inode of each file before it is renamed into place."""


class IndexChangedError(Exception):
    """A file was deleted before it was searched: list the files again."""


class KeyIndex:
    """The index files of one store. Does not keep files open. Safe to share between readers."""

    def __init__(self, layout: Layout, geometry: Geometry, created: Created | None = None) -> None:
        self._folder, self._scratch = layout.index, layout.scratch
        self._geometry, self._created = geometry, created
        self._known_files: dict[tuple[str, int], IndexFileInfo] = {}

    def names(self) -> list[str]:
        """Return the names of the files, oldest first; ignores other files in the folder."""
        return [name for name, _ in self._listed()]

    @naming_obstacles
    def _listed(self) -> list[tuple[str, int]]:
        """Return names and inodes."""
        try:
            with listed(self._folder) as entries:
                return sorted(
                    (entry.name, entry.inode()) for entry in entries if is_table_name(entry.name)
                )
        except FileNotFoundError:
            return []

    def files(self) -> Iterator[IndexFileInfo]:
        """Yield the files, oldest first. Raises StoreDamagedError at an unusable file.

        A full file does not change and is opened once. Files may be deleted in the meantime.
        """
        keys = self._listed()
        known = self._known_files
        self._known_files = {key: known[key] for key in keys if key in known}
        for key in keys:
            file = self._known_files.get(key)
            if file is None or not self.is_full(file.header):
                file = self._inspect(key[0], file)
                if file is not None and not file.header_error:
                    self._known_files[key] = file
            if file is not None:
                yield file

    def _inspect(self, name: str, known: IndexFileInfo | None) -> IndexFileInfo | None:
        with suppress(FileNotFoundError), self.open(name) as opened:
            return inspect(name, opened, known)
        return None

    def path(self, name: str) -> Path:
        return self._folder / name

    def open(self, name: str, *, writable: bool = False) -> IndexFile:
        """Open one file. Raises StoreDamagedError (KEY_INDEX_DAMAGED), FileNotFoundError."""
        return IndexFile(self.path(name), self._geometry, writable=writable)

    def header(self, name: str) -> IndexHeader:
        with self.open(name) as file:
            return file.header()

    def is_full(self, header: IndexHeader) -> bool:
        """Whether a file with this header is full. A full file never changes."""
        return header.count >= self._geometry.items

    def full_until(self) -> int:
        """Return the store time (ms) of the last item in the last full file; 0 without one."""
        for name in reversed(self.names()):
            header = self.header(name)
            if self.is_full(header):
                return header.end_timestamp
        return 0

    def append(self, items: KeyItems, now_ms: int, names: Sequence[str] | None = None) -> list[str]:
        """Append the items of consecutive records, except items that are in the files already.

        Like RocketMQ, this skips records before endPhyOffset. A writer that was killed may have
        added only some items of the record at endPhyOffset; the missing ones are added. `names` are
        the valid files, by default all. Returns the names of the files afterwards.
        """
        names = self.names() if names is None else list(names)
        items = items[self._known(items, names) :]
        while len(items):
            if not names:
                names.append(self._create(IndexHeader(), "", now_ms))
            with self.open(names[-1], writable=True) as file:
                done = file.put(items)
                header = file.header()
            items = items[done:]
            if len(items):
                names.append(self._create(header, names[-1], now_ms))
        return names

    def _known(self, items: KeyItems, names: Sequence[str]) -> int:
        """Return the number of leading items that are in the files already."""
        if not names or not len(items):
            return 0
        last = self.header(names[-1]).end_offset
        before = int(items.offsets.searchsorted(last))
        if before == len(items) or items.offsets[before] != last:
            return before
        of_last = int(items.offsets.searchsorted(last, side="right")) - before
        return before + min(self.count_last(names, last), of_last)

    def count_last(self, names: Sequence[str], offset: int) -> int:
        """Return the number of items in these files of the last record, which is at `offset`."""
        present = 0
        for name in reversed(names):
            with self.open(name) as file:
                trailing, count = file.trailing(offset), file.header().count
            present += trailing
            if trailing < count - 1:
                break
        return present

    def _create(self, previous: IndexHeader, previous_name: str, now_ms: int) -> str:
        """Create the file that begins at the end of the previous, full file; return its name."""
        name = table_name(now_ms)
        if name <= previous_name:
            name = name_after(previous_name)
        end_ms, end = previous.end_timestamp, previous.end_offset
        header = IndexHeader(end_ms, end_ms, end, end).encode()

        def announce(descriptor: int) -> None:
            if self._created is not None:
                self._created(name, os.fstat(descriptor).st_ino)

        io.make_directory(self._folder)
        io.make_directory(self._scratch)
        io.install_file(
            *(self.path(name), self._scratch, [(0, header)]),
            length=self._geometry.file_bytes,
            before_rename=announce,
            fails_store=True,
        )
        return name

    def search(
        self, wanted: Ints, begin_ms: int, end_ms: int, files: Sequence[IndexFileInfo] | None = None
    ) -> Iterator[Ints]:
        """Yield log offsets of messages that may have keys with these hashes, in parts.

        The newest file is searched first. Offsets of a single hash are yielded newest first,
        possibly repeated. Other keys may have the same hash, and times are exact to the second, so
        compare the results with the records. `files` are the valid files, by default all. Raises
        IndexChangedError if one of them is missing, StoreDamagedError.
        """
        files = list(self.files()) if files is None else files
        for known in in_time(files, begin_ms, end_ms):
            with self._reopen(known) as file:
                search = KeySearch(file, self._geometry, wanted, begin_ms, end_ms)
                yield from search.parts(known.header.count)

    def _reopen(self, known: IndexFileInfo) -> IndexFile:
        """Open an inspected file. Raises IndexChangedError if it is missing."""
        with suppress(FileNotFoundError):
            file = self.open(known.name)
            if file.inode == known.inode:
                return file
            file.close()
        raise IndexChangedError

    def remove_below(self, log_start: int) -> int:
        """Delete the files of `names_below`; return their number. Needs the write lock."""
        return self._remove(self.names_below(log_start))

    def names_below(self, log_start: int) -> list[str]:
        """Return the files that only have records before `log_start`, except the last file.

        Raises StoreDamagedError (KEY_INDEX_DAMAGED).
        """
        older = takewhile(lambda name: self.header(name).end_offset < log_start, self.names()[:-1])
        return list(older)

    def keep_only(self, names: Sequence[str]) -> int:
        """Delete all files except these, newest first; return the number of deleted files."""
        others = [name for name in self.names() if name not in names]
        return self._remove(others[::-1])

    def valid_prefix(self, log_end: int, *, strict: bool = False) -> list[IndexFileInfo]:
        """Return the longest prefix of the files that is valid for a log ending at `log_end`.

        Only the last file of the prefix may be partly filled. An unusable file ends the prefix; if
        `strict`, it raises StoreDamagedError.
        """
        prefix: list[IndexFileInfo] = []
        with nullcontext() if strict else suppress(StoreDamagedError):
            for file in self.files():
                end, before = file.header.end_offset, prefix[-1].header.end_offset if prefix else 0
                beyond = file.header.count > 1 and end >= log_end
                if file.header_error or end < before or beyond:
                    break
                prefix.append(file)
                if not self.is_full(file.header):
                    break
        return prefix

    def count_durable(self, index_timestamp: int) -> int:
        """Return the number of leading files that were durable when the machine stopped.

        All full files were durable when the checkpoint was written, and `index_timestamp` is the
        end time of the last of them. Store times never decrease, so each full file that ends before
        this time was durable. If several files end at this time, only the first is known to have
        been durable. A file that is not full was not durable. RocketMQ keeps all files that end at
        or before `index_timestamp`.
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
        """Flush all files. Raises SyncError."""
        for name in self.names():
            with self.open(name) as file:
                file.sync()

    def sync_full(self, since: int) -> int:
        """Flush the full files whose end time is `since` (ms) or later.

        Returns the end time of the last full file, at least `since`. Files may be deleted in the
        meantime. Raises SyncError.
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

    def _remove(self, names: list[str]) -> int:
        for name in names:
            io.unlink(self.path(name))
        if names:
            io.sync_directory(self._folder)
        return len(names)


def in_time(files: Sequence[IndexFileInfo], begin_ms: int, end_ms: int) -> Iterator[IndexFileInfo]:
    """Yield the files, newest first, that may have messages stored in [begin_ms, end_ms]."""
    for known in reversed(files):
        # The last file may have grown since it was inspected.
        over = known is not files[-1] and known.header.end_timestamp + SLACK_MS < begin_ms
        if not over and known.header.begin_timestamp - SLACK_MS <= end_ms:
            yield known


_GROWTH = 16

_Place = tuple[str, int] | None
_NOTHING_MISSING = -1


class IndexCoverage:
    """Compares index files with one log. Safe to share between threads.

    The gap between two files is checked once, because the log and the start of a file never change.
    """

    def __init__(self, log: CommitLog, index: KeyIndex, first_look: int = 64 * 1024) -> None:
        """Initialize; the first read of the log has `first_look` bytes, later reads have more."""
        self._log, self._index, self._first_look = log, index, first_look
        self._missing: dict[tuple[_Place, _Place], int] = {}
        self._confirmed: dict[_Place, IndexFileInfo] = {}

    def contiguous_prefix(self, files: Sequence[IndexFileInfo]) -> list[IndexFileInfo]:
        """Return the files before the first gap that may lack keys, such as an unreadable log."""
        while True:
            first = self._log.first_offset()
            count = self._contiguous_count(first, files)
            if count == len(files) or self._log.first_offset() == first:
                return list(files[:count])
            # The start of the log was deleted meanwhile.

    def _contiguous_count(self, first: int, files: Sequence[IndexFileInfo]) -> int:
        for count, file in enumerate(files):
            begin, before = file.header.begin_offset, files[:count]
            end = before[-1].header.end_offset if before else 0
            if not end <= begin <= file.header.end_offset or not self._has_right_times(file):
                return count
            # A record's items may continue from one file to the next.
            continues = bool(before) and begin == end
            if not continues and begin > first and self._lacks(before, file, first):
                return count
        return len(files)

    def _has_right_times(self, file: IndexFileInfo) -> bool:
        """Whether the header has the store times of the file's first and last record."""
        place = _place(file)
        known = self._confirmed.get(place)
        if known is file or known == file:
            return True
        if self.wrong_time(file):
            return False
        self._confirmed[place] = file
        return True

    def wrong_time(self, file: IndexFileInfo) -> str:
        """Describe a time in the header that is not that of the file's first or last record.

        If the log does not have such a record, the header's times must match those of the items.
        Returns an empty string if the times are right.
        """
        header = file.header
        ends = (
            ("begin", header.begin_offset, header.begin_timestamp),
            ("end", header.end_offset, header.end_timestamp),
        )
        for word, offset, time in ends if header.count > 1 else ():
            stored = self._stored(offset)
            if stored is None and not file.times_agree:
                return "the times in its header contradict its items."
            if stored not in (None, time):
                return f"its header has the {word} time {time} ms; the log has {stored} ms."
        return ""

    def _stored(self, offset: int) -> int | None:
        """Return the store time of the record at `offset`; None without a record."""
        try:
            return self._log.stored_at(offset) or None
        except FileNotFoundError:
            return None

    def _lacks(self, before: Sequence[IndexFileInfo], file: IndexFileInfo, first: int) -> bool:
        """Whether a record between `before`, or the log's start, and `file` is not indexed."""
        if before and before[-1].header.end_offset < first:
            before = ()
        joint = _place(before[-1] if before else None), _place(file)
        missing = self._missing.get(joint)
        if missing is None or _NOTHING_MISSING < missing < first:
            try:
                missing = self._first_missing(before, file.header.begin_offset, first)
            except (StoreDamagedError, FileNotFoundError):
                return True
            self._missing[joint] = missing
        return missing != _NOTHING_MISSING

    def _first_missing(self, before: Sequence[IndexFileInfo], begin: int, first: int) -> int:
        """Return the log offset of the first record with missing keys, or _NOTHING_MISSING."""
        if not before:
            return self._first_keyed(first, begin)
        last = before[-1].header.end_offset
        head = self._log.read(last, BLANK_BYTES)
        size = read_header(head).size if len(head) == BLANK_BYTES else 0
        record, _ = run_at(self._log, last, last + max(size, BLANK_BYTES))
        if record is None:
            raise record_missing(last, begin)
        names = [file.name for file in before]
        if self._index.count_last(names, last) < len(key_items(record)):
            return last
        return self._first_keyed(end_of(record), begin)

    def _first_keyed(self, start: int, end: int) -> int:
        """Return the log offset of the first record in [start, end) with a key.

        The first read is short: usually the first record has a key, or the range is empty.
        """
        look = self._first_look
        while start < end:
            file_end = self._log.file_end(start)
            limit = min(end, file_end)
            run, blank = run_at(self._log, start, min(start + look, limit))
            if run is not None:
                items = key_items(run)
                if len(items):
                    return int(items.offsets[0])
                start = end_of(run)
            elif not blank and start + look >= limit:
                raise record_missing(start, end)
            start = file_end if blank else start
            look *= _GROWTH
        return _NOTHING_MISSING


def _place(file: IndexFileInfo | None) -> _Place:
    return (file.name, file.inode) if file is not None else None
