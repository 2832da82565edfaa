"""Finds, saves and reads complete records after a damaged range or after the end of the log.

Recovery never removes a complete record that was durable. It saves other complete records that it
truncates in `pyrocket/cut-<time>-<offset>.tail`, and retains the last ten such files. A repair
that truncates on request writes `cut-<time>-<offset>`, which is never deleted automatically.
"""

import errno
import itertools
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyrocket.disk import io
from pyrocket.disk.file_queue import file_name
from pyrocket.disk.layout import listed
from pyrocket.errors import KEEP_WHAT_FOLLOWS, PLACEHOLDER, InvalidInputError, StoreDamagedError
from pyrocket.formats.record import BLANK_BYTES, SYS_DAMAGED, find_record, follow, read_header
from pyrocket.formats.record_decode import decode_record
from pyrocket.formats.record_fields import RecordFields
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.record_walk import end_of, run_at
from pyrocket.log.valid_end import Durable, record_fault, whole_records
from pyrocket.values.message import StoredMessage

_BLOCK_BYTES = 4 * 1024 * 1024
_OVERLAP = 64
_HEAD_BYTES = 36
_REASON_BYTES = 1 << 16

_Progress = Callable[[int, str], None]
"""Called with the number of bytes read since the last call, and the file's name."""


@dataclass(frozen=True)
class DamagedRange:
    """[start, end) of the log has no complete record; `before` complete records precede it."""

    start: int
    end: int
    reason: str
    before: int = 0


class LogCheck:
    """Walks the records of one log, and collects the damaged ranges in `bad`.

    With `end_is_known` everything up to the end must be records; otherwise the log ends at zeros.
    Placeholders are treated as complete records, and are also collected in `placeholders`.
    """

    def __init__(self, log: CommitLog, progress: _Progress, *, end_is_known: bool) -> None:
        self._log, self._progress, self._end_is_known = log, progress, end_is_known
        self.bad: list[DamagedRange] = []
        self.placeholders: list[DamagedRange] = []
        self.end = 0
        self.records = 0
        self.last_stored = 0

    def runs(self, start: int, end: int) -> Iterator[RecordFields]:
        """Yield the complete records in [start, end), window by window.

        Everything else is added to `bad`; `self.end` becomes the end of the last complete record.
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
                position = file_end if blank and not run else self._skip_damage(position, end)
            name = file_name(self._log.run.start_of(before))
            self._progress(min(position, end) - before, f"commitlog/{name}")

    def _examine(self, run: RecordFields) -> tuple[RecordFields, int]:
        """Return the complete records, and the offset up to which sizes can be trusted."""
        position = end_of(run)
        if whole_records(run) < len(run):
            run, position = self._separate_damaged(run)
        if len(run):
            self.end = end_of(run)
            self.records += len(run)
            self.last_stored = max(self.last_stored, int(run.store_timestamp.max()))
        for at in np.flatnonzero(run.sys_flag & SYS_DAMAGED).tolist():
            start = int(run.physical_offset[at])
            self.placeholders.append(
                DamagedRange(start, start + int(run.sizes[at]), f"{PLACEHOLDER}.")
            )
        return run, position

    def _separate_damaged(self, run: RecordFields) -> tuple[RecordFields, int]:
        """Collect the damaged records; return the others.

        Sizes are trusted, except the size of the last record if no record follows it.
        """
        view = memoryview(run.buffer)
        good = np.ones(len(run), bool)
        position = end_of(run)
        bounds = zip(run.starts.tolist(), run.sizes.tolist(), strict=True)
        for at, (start, size) in enumerate(bounds):
            where = run.base + start
            fault = record_fault(view[start : start + size], where, run.sealed())
            good[at] = not fault
            if fault and at == len(run) - 1 and not self._continues_at(where + size):
                position = where
            elif fault:
                before = self.records + int(good[:at].sum())
                self.bad.append(DamagedRange(where, where + size, fault, before))
        return run.part(good), position

    def _continues_at(self, position: int) -> bool:
        """Whether a record or a blank record starts at `position`."""
        data = self._log.read(position, _HEAD_BYTES)
        is_blank = len(data) >= BLANK_BYTES and read_header(data).is_blank
        return is_blank or find_record(data, position) == 0

    def _skip_damage(self, position: int, end: int) -> int:
        """Collect the damaged range at `position`; return the next record's offset or `end`."""
        next_offset = self._next_record(position + 1, end)
        reason = self._reason(position)
        if next_offset < end or reason or self._end_is_known:
            reason = reason or "there is no record."
            self.bad.append(DamagedRange(position, next_offset, reason, self.records))
        return next_offset

    def _reason(self, position: int) -> str:
        """Return the reason why there is no record at `position`; empty if there are only zeros."""
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
        """Return the offset of the next record, in this file or a later one; `end` if none."""
        for at, data in self._log.run.blocks(position, end, overlap=_OVERLAP):
            index = find_record(data, at)
            if index >= 0:
                return at + index
        return end


def written_after(log: CommitLog, end: int) -> tuple[int, int]:
    """Return [first, last) of the nonzero bytes at or after `end`, or (end, end)."""
    first = last = end
    for position, data in log.run.blocks(end, 2**63 - 1):
        if data != bytes(len(data)):  # Compared first, because stripping zeros is slow.
            kept = data.rstrip(b"\0")
            first = position + len(kept) - len(kept.lstrip(b"\0")) if first == last else first
            last = position + len(kept)
    return first, last


MAX_TAILS = 10

_NAME = re.compile(r"cut-\d+-\d+(\.tail)?")

_log = logging.getLogger(__name__)


def check_tail(log: CommitLog, end: int, durable: Durable) -> int:
    """Return the number of durable bytes missing from a log that is valid up to `end`.

    Raises StoreDamagedError (LOG_DAMAGED) if complete records that were durable follow `end`.
    """
    starts = log.run.starts()
    limit = starts[-1] + log.file_bytes if starts else end
    check = LogCheck(log, lambda count, name: None, end_is_known=False)
    whole = lost = 0
    for run in check.runs(end, limit):
        whole, lost = whole + len(run), lost + int(durable.cover(run).sum())
    if lost:
        start, before = log.run.start_of(end), [bad for bad in check.bad if bad.start < check.end]
        reason = before[0].reason if before else "it does not continue its queue."
        unreadable = sum(place.end - place.start for place in before)
        raise StoreDamagedError(
            f"corrupt log: the record at byte {end - start} of commitlog/{file_name(start)} is"
            f" damaged: {reason} {unreadable} bytes cannot be read, and {whole} complete records"
            f" follow, {lost} of which were certainly durable.",
            remedy=KEEP_WHAT_FOLLOWS,
            code="LOG_DAMAGED",
        )
    return max(0, durable.end - end)


def keep_tail(
    log: CommitLog, own: Path, scratch: Path, now_ms: int, start: int, missing: int
) -> None:
    """Log and save the bytes that a recovery is about to truncate from the log at `start`.

    The bytes are saved if they contain complete records, or if `missing`, the number of lost
    durable bytes, is not 0. On a full disk they are not saved: they were never acknowledged as
    durable, and only this recovery can free space.
    """
    end = written_after(log, start)[1]
    check = LogCheck(log, lambda count, name: None, end_is_known=False)
    whole = sum(len(run) for run in check.runs(start, end))
    if missing:
        _log.error(
            "%s ends at %d: %d bytes that were durable are missing. Restore the store from a"
            " backup if there is a better one.",
            *(log.run.folder, start, missing),
        )
    if end > start:
        _log.warning(
            "%s: truncating %d bytes after its end at %d, with %d complete records that were not"
            " durable yet",
            *(log.run.folder, end - start, start, whole),
        )
    if end == start or not (whole or missing):
        return
    target = own / f"cut-{now_ms}-{start}.tail"
    try:
        keep_cut(log, target, scratch, start, end)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _log.error("%s could not be saved: %s", target, error)
        return
    _log.warning("the truncated bytes are saved in %s", target)
    # Never delete the new file, even if the clock was set back.
    others = {tail for tail in listed(own) if _NAME.fullmatch(tail.name) and tail.suffix} - {target}
    for old in sorted(others, key=_time_and_offset)[: 1 - MAX_TAILS]:
        io.unlink(old)


def keep_cut(log: CommitLog, target: Path, scratch: Path, start: int, end: int) -> None:
    """Copy [start, end) of the log durably to the file `target`."""
    parts = ((at - start, data) for at, data in log.run.blocks(start, end))
    io.install_file(target, scratch, parts, length=end - start)


def cut_messages(path: Path) -> Iterator[StoredMessage]:
    """Yield the complete messages of a file `pyrocket/cut-<time>-<offset>…`, in log order.

    Raises InvalidInputError for a file with another name, and StoreDamagedError for a message whose
    body cannot be decompressed.
    """
    if not _NAME.fullmatch(path.name):
        raise InvalidInputError(
            f"{path} is not a file of bytes truncated from a log.",
            remedy="Pass a file `pyrocket/cut-<time>-<offset>` of a store.",
        )
    base, position = _time_and_offset(path)[1], 0
    with pa.memory_map(str(path)) as file:
        view = memoryview(file.read_buffer())
    while position < len(view):
        starts, position = follow(view, position)
        for start, end in itertools.pairwise([*starts, position]):
            record = view[start:end]
            if not record_fault(record, base + start):
                message = decode_record(record)
                if not message.sys_flag & SYS_DAMAGED:
                    yield message.to_message()
        position = _next_record(view, base, position + 1)


def _next_record(view: memoryview, base: int, position: int) -> int:
    """Return the position of the next record; the length of the file if there is none."""
    for start in range(position, len(view), _BLOCK_BYTES):
        index = find_record(view[start : start + _BLOCK_BYTES + _HEAD_BYTES], base + start)
        if index >= 0:
            return start + index
    return len(view)


def _time_and_offset(path: Path) -> tuple[int, int]:
    _, time, offset = path.name.removesuffix(".tail").split("-")
    return int(time), int(offset)
