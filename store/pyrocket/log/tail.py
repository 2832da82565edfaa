"""What follows the last valid record of a log: whether it may be cut off, and keeping it.

A recovery never removes a whole record that was durable. What it does cut is kept beside the log
where it holds whole records: `pyrocket/cut-<time>-<offset>.tail`, at most the last ten. A repair
that cuts on request keeps `cut-<time>-<offset>`, which nothing removes.
"""

import errno
import itertools
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pyrocket.disk import io
from pyrocket.disk.layout import file_name, listed
from pyrocket.errors import KEEP_WHAT_FOLLOWS, InvalidInputError, StoreDamagedError
from pyrocket.formats.record import SYS_DAMAGED, find_record, follow
from pyrocket.formats.record_decode import decode_record
from pyrocket.log.commit_log import CommitLog
from pyrocket.log.salvage import LogCheck, written_behind
from pyrocket.log.valid_end import Durable, record_fault
from pyrocket.message import StoredMessage

MAX_TAILS = 10
_BLOCK_BYTES = 4 * 1024 * 1024
_HEAD_BYTES = 36

_NAME = re.compile(r"cut-\d+-\d+(\.tail)?")

_log = logging.getLogger(__name__)


def check_tail(log: CommitLog, end: int, durable: Durable) -> int:
    """Return how many bytes that were durable are missing from a log that is valid up to `end`.

    Raises StoreDamagedError (LOG_DAMAGED) if whole records that were durable follow there.
    """
    starts = log.run.starts()
    limit = starts[-1] + log.file_bytes if starts else end
    check = LogCheck(log, lambda count, name: None, end_is_known=False)
    whole = lost = 0
    for run in check.runs(end, limit):
        whole, lost = whole + len(run), lost + int(durable.cover(run).sum())
    if lost:
        start, before = log.run.start_of(end), [bad for bad in check.bad if bad.start < check.end]
        reason = before[0].reason if before else "it does not go on where its queue was."
        unreadable = sum(place.end - place.start for place in before)
        raise StoreDamagedError(
            f"corrupt log: the record at byte {end - start} of commitlog/{file_name(start)} is"
            f" damaged: {reason} {unreadable} bytes cannot be read, and {whole} whole records"
            f" follow, of which {lost} were durable for sure.",
            remedy=KEEP_WHAT_FOLLOWS,
            code="LOG_DAMAGED",
        )
    return max(0, durable.end - end)


def keep_tail(
    log: CommitLog, own: Path, scratch: Path, now_ms: int, start: int, missing: int
) -> None:
    """Keep what a recovery is about to cut off the log at `start`, and log it.

    Bytes are kept if there are whole records among them, or if `missing` bytes were durable.
    On a full disk they are not: they were never acknowledged as durable, and the way to room for
    others is through this recovery.
    """
    end = written_behind(log, start)[1]
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
            "%s: %d bytes after its end at %d are cut off; %d whole records among them were not"
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
        _log.error("%s could not be kept: %s", target, error)
        return
    _log.warning("what is cut off is kept in %s", target)
    # Not this one, whatever the clock says.
    others = {each for each in listed(own) if _NAME.fullmatch(each.name) and each.suffix} - {target}
    for old in sorted(others, key=_time_and_offset)[: 1 - MAX_TAILS]:
        io.unlink(old)


def keep_cut(log: CommitLog, target: Path, scratch: Path, start: int, end: int) -> None:
    """Copy [start, end) of the log to a file of its own, durably."""
    draft = scratch / target.name
    descriptor = io.open_file(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        position = start
        while position < end:
            length = min(_BLOCK_BYTES, end - position, log.file_end(position) - position)
            io.write_at(descriptor, log.read(position, length), position - start)
            position += length
        io.sync(descriptor)
    finally:
        os.close(descriptor)
    io.rename(draft, target)
    io.sync_directory(target.parent)


def cut_messages(path: Path) -> Iterator[StoredMessage]:
    """Yield the whole messages of a file `pyrocket/cut-<time>-<offset>…`, in log order.

    Raises InvalidInputError for a file of another name, StoreDamagedError for a message whose body
    cannot be inflated.
    """
    if not _NAME.fullmatch(path.name):
        raise InvalidInputError(
            f"{path} is not a file that was cut off a log.",
            remedy="Name a file `pyrocket/cut-<time>-<offset>` of a store.",
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
    """Return where the next record begins; the length of the file if there is none."""
    for start in range(position, len(view), _BLOCK_BYTES):
        found = find_record(view[start : start + _BLOCK_BYTES + _HEAD_BYTES], base + start)
        if found >= 0:
            return start + found
    return len(view)


def _time_and_offset(path: Path) -> tuple[int, int]:
    _, time, offset = path.name.removesuffix(".tail").split("-")
    return int(time), int(offset)
