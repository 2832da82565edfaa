"""Finds the valid index files: those that together cover the log from its start without a gap.

Each file has all keys from its first record to its last. The log shows whether keys are missing
between two files. RocketMQ leaves such gaps: after an unclean shutdown it deletes files and
continues from its recovery offset, before our lock rejects it. The begin and end times of the files
are also compared with the log.
"""

from collections.abc import Sequence

from pyrocket.errors import StoreDamagedError
from pyrocket.formats.record import BLANK_BYTES, read_header
from pyrocket.index.keys.index_file import IndexFileInfo
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.index.keys.key_items import key_items
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, run_at

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
        """Return the files before the first gap in which keys may be missing.

        Keys may be missing wherever the log cannot be read.
        """
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
        """Whether the header has the store times of the file's first and last record.

        If the log does not have such a record, the header's times must match those of the items.
        """
        header, place = file.header, _place(file)
        known = self._confirmed.get(place)
        if known is file or known == file:
            return True
        ends = (
            (header.begin_offset, header.begin_timestamp),
            (header.end_offset, header.end_timestamp),
        )
        for offset, time in ends if header.count > 1 else ():
            stored = self._stored(offset)
            if not file.times_agree if stored is None else stored != time:
                return False
        self._confirmed[place] = file
        return True

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
            raise _no_record(last)
        names = [one.name for one in before]
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
                raise _no_record(start)
            start = file_end if blank else start
            look *= _GROWTH
        return _NOTHING_MISSING


def _place(file: IndexFileInfo | None) -> _Place:
    return (file.name, file.inode) if file is not None else None


def _no_record(offset: int) -> StoreDamagedError:
    return StoreDamagedError(
        f"corrupt log: there is no record at {offset}.", remedy="Restore the log from a backup."
    )
