"""The chain of records: followed from file to file, and found again behind a damaged place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pyrocket.disk.layout import file_name
from pyrocket.disk.sparse import data_from
from pyrocket.errors import PLACEHOLDER, StoreDamagedError
from pyrocket.formats.record import BLANK_BYTES, SYS_DAMAGED, find_record, read_header
from pyrocket.formats.record_fields import RecordFields
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, run_at
from pyrocket.log.valid_end import record_fault, whole_records

_BLOCK_BYTES = 4 * 1024 * 1024
_OVERLAP = 64
_HEAD_BYTES = 36
_REASON_BYTES = 1 << 16

Progress = Callable[[int, str], None]
"""Told how many bytes have been looked at since the last call, and of what."""


@dataclass(frozen=True)
class BadPlace:
    """[start, end) of the log holds no whole record; behind it others follow, or nothing does.

    `before` counts the whole records before it.
    """

    start: int
    end: int
    reason: str
    before: int = 0


class LogCheck:
    """Follows the records of one log, and keeps where they are not whole.

    With `end_is_known` everything up to there has to be records; otherwise zeros end the log.
    Placeholders count as whole records; they are kept apart as well.
    """

    def __init__(self, log: CommitLog, progress: Progress, *, end_is_known: bool) -> None:
        self._log, self._progress, self._end_is_known = log, progress, end_is_known
        self.bad: list[BadPlace] = []
        self.placeholders: list[BadPlace] = []
        self.end = 0
        self.records = 0
        self.last_stored = 0

    def runs(self, start: int, end: int) -> Iterator[RecordFields]:
        """Yield the whole records in [start, end), window by window.

        What is no whole record goes to `bad`; `end` of this becomes where the last one ends.
        """
        position = self.end = start
        while position < end:
            before, file_end = position, self._log.file_end(position)
            run, blank = run_at(self._log, position, min(end, file_end))
            whole, position = self._examine(run) if run else (None, position)
            if whole:
                yield whole
            if run and position == end_of(run):
                position = file_end if blank else position
            else:
                position = file_end if blank and not run else self._behind(position, end)
            name = file_name(self._log.run.start_of(before))
            self._progress(min(position, end) - before, f"commitlog/{name}")

    def _examine(self, run: RecordFields) -> tuple[RecordFields, int]:
        """Return the whole records, and up to where the chain can be believed."""
        position = end_of(run)
        if whole_records(run) < len(run):
            run, position = self._sort_out(run)
        if len(run):
            self.end = end_of(run)
            self.records += len(run)
            self.last_stored = max(self.last_stored, int(run.store_timestamp.max()))
        for at in np.flatnonzero(run.sys_flag & SYS_DAMAGED).tolist():
            start = int(run.physical_offset[at])
            self.placeholders.append(BadPlace(start, start + int(run.sizes[at]), f"{PLACEHOLDER}."))
        return run, position

    def _sort_out(self, run: RecordFields) -> tuple[RecordFields, int]:
        """Note the records that are not whole; return the others.

        The chain itself is believed, but for the last record where nothing follows it.
        """
        view = memoryview(run.buffer)
        good = np.ones(len(run), bool)
        position = end_of(run)
        bounds = zip(run.starts.tolist(), run.sizes.tolist(), strict=True)
        for at, (start, size) in enumerate(bounds):
            where = run.base + start
            fault = record_fault(view[start : start + size], where, run.sealed())
            good[at] = not fault
            if fault and at == len(run) - 1 and not self._goes_on(where + size):
                position = where
            elif fault:
                before = self.records + int(good[:at].sum())
                self.bad.append(BadPlace(where, where + size, fault, before))
        return RecordFields(run.buffer, run.base, run.starts[good], run.sizes[good]), position

    def _goes_on(self, position: int) -> bool:
        """Whether a record or a blank one begins there."""
        data = self._log.read(position, _HEAD_BYTES)
        is_blank = len(data) >= BLANK_BYTES and read_header(data).is_blank
        return is_blank or find_record(data, position) == 0

    def _behind(self, position: int, end: int) -> int:
        """Note the bad place at `position`; return where the next record begins, or `end`."""
        found = self._next_record(position + 1, end)
        reason = self._reason(position)
        if found < end or reason or self._end_is_known:
            reason = reason or "there is no record."
            self.bad.append(BadPlace(position, found, reason, self.records))
        return found

    def _reason(self, position: int) -> str:
        """Return what is at a place where a record should be; empty if there are only zeros."""
        try:
            length = min(_REASON_BYTES, self._log.file_end(position) - position)
            rest = self._log.read(position, length)
        except (FileNotFoundError, StoreDamagedError):
            return ""
        return (
            record_fault(memoryview(rest), position, self._log.sealed())
            if rest.strip(b"\0")
            else ""
        )

    def _next_record(self, position: int, end: int) -> int:
        """Return where the next record in this or a later file begins; `end` if there is none."""
        first = self._log.run.start_of(position)
        for start in self._log.run.starts():
            if start < first or start >= end:
                continue
            found = self._search(max(start, position), min(end, start + self._log.file_bytes))
            if found >= 0:
                return found
        return end

    def _search(self, position: int, end: int) -> int:
        path = self._log.run.folder / file_name(self._log.run.start_of(position))
        start = self._log.run.start_of(position)
        while position < end:
            position = max(position, start + data_from(path, position - start))
            if position >= end:
                break
            data = self._log.read(position, min(_BLOCK_BYTES, end - position))
            found = find_record(data, position)
            if found >= 0:
                return position + found
            if len(data) <= _OVERLAP:
                return -1
            position += len(data) - _OVERLAP
        return -1

    def tail(self) -> tuple[int, int]:
        """Return [first, last) of the bytes behind the log's end that are not zero; else empty."""
        return written_behind(self._log, self.end)


def written_behind(log: CommitLog, end: int) -> tuple[int, int]:
    """Return [first, last) of the bytes at or behind `end` that are not zero, or (end, end)."""
    first = last = end
    for position, data in _written(log, end):
        kept = data.rstrip(b"\0")
        if kept:
            first = position + len(kept) - len(kept.lstrip(b"\0")) if first == last else first
            last = position + len(kept)
    return first, last


def _written(log: CommitLog, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of the log from `begin` on, without holes."""
    for start in log.run.starts():
        path = log.run.folder / file_name(start)
        end = start + path.stat().st_size
        position = max(start, begin)
        while position < end:
            position = max(position, start + data_from(path, position - start))
            data = log.read(position, _BLOCK_BYTES) if position < end else b""
            yield position, data
            position += len(data) or 1
