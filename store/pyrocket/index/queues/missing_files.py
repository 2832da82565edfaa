"""Checks for missing, short and long files of the log and of queues.

Cleaning deletes the files of a log or queue in ascending order; deleting a topic, in descending
order. Therefore a message before the first file has expired, and a message whose file is missing
elsewhere is lost. Files that are deleted during a check are not reported, but the check may raise
FileNotFoundError.
"""

import errno
import os

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name
from pyrocket.errors import (
    REBUILD_QUEUES,
    VERIFY_FIRST,
    OffsetOutOfRangeError,
    PyrocketError,
    StoreDamagedError,
)
from pyrocket.formats.queue_entry import ENTRY_BYTES
from pyrocket.index.queues.consume_queue import ConsumeQueue

BEGIN_AT_MINIMUM = "Start at the queue's minimum offset."
RESTORE_FROM_BACKUP = "Restore it from a backup; `pyrocket verify` shows what else is missing."


def missing_log_file(queue: ConsumeQueue, log: FileQueue, end: int) -> int | None:
    """Return the start offset of a missing log file that contains the queue's next message.

    `end` is the end of the last existing log file. Returns None if the queue also ends there, or if
    its next entry does not point into the file after the last one and so is not valid.
    """
    ahead = queue.max_offset(end)
    for entry in queue.entries(ahead, ahead + 1):
        files, start = log.starts(), log.start_of(int(entry["physical_offset"]))
        expected = files[-1] + log.file_bytes if files else start
        if entry["size"] > 0 and start == expected:
            return expected
    return None


def no_log_file(log: FileQueue, position: int, where: str) -> PyrocketError:
    """Return the error for a message, described by `where`, whose log file does not exist.

    Returns OffsetOutOfRangeError if the file at log offset `position` has expired, and
    StoreDamagedError (STORE_FILE_MISSING) if it is lost. A negative position, or one after the next
    file of the log, means that the queue's entry is invalid.
    """
    starts, start = log.starts(), log.start_of(position)
    where = f"{where} (log offset {position})"
    if starts and 0 <= position < starts[0]:
        message = f"the log file with {where} has expired."
        return OffsetOutOfRangeError(message, remedy=BEGIN_AT_MINIMUM)
    if position < 0 or (starts and start > starts[-1] + log.file_bytes):
        message = f"the queue entry of {where} points outside the log."
        return StoreDamagedError(message, remedy=VERIFY_FIRST)
    return missing_file(log, start, RESTORE_FROM_BACKUP, f" with {where}")


def no_entry(queue: ConsumeQueue, offset: int) -> PyrocketError | None:
    """Return the error for an offset without an entry; None if the queue's files are complete.

    Returns OffsetOutOfRangeError if the queue's file has expired, and StoreDamagedError
    (STORE_FILE_…) if it is too short, or missing while a later file exists.
    """
    run, where = queue.run, f"offset {offset} of queue {queue.queue_id} of {queue.topic!r}"
    starts, start = run.starts(), run.start_of(offset * ENTRY_BYTES)
    if starts and start < starts[0]:
        message = f"the messages from {where} on have expired."
        return OffsetOutOfRangeError(message, remedy=BEGIN_AT_MINIMUM)
    if start in starts:
        return wrong_length(run, start, REBUILD_QUEUES, f", with {where},")
    if starts and start < starts[-1]:
        return missing_file(run, start, REBUILD_QUEUES, f" with {where}")
    return None


def missing_file(run: FileQueue, start: int, remedy: str, what: str = "") -> StoreDamagedError:
    """Return the error for a file that does not exist (STORE_FILE_MISSING)."""
    message = f"{run.folder} lacks the file {file_name(start)}{what}."
    return StoreDamagedError(message, remedy=remedy, code="STORE_FILE_MISSING")


def wrong_length(
    run: FileQueue, start: int, remedy: str, what: str = ""
) -> StoreDamagedError | None:
    """Return the error for a file that is too short or too long (STORE_FILE_LENGTH), or None.

    Raises FileNotFoundError.
    """
    path = run.folder / file_name(start)
    size = path.stat().st_size
    if size == run.file_bytes:
        return None
    message = f"{path}{what} has {size} bytes, not {run.file_bytes}."
    return StoreDamagedError(message, remedy=remedy, code="STORE_FILE_LENGTH")


def check_log_files(log: FileQueue, end: int | None, *, torn: bool) -> None:
    """Raise StoreDamagedError if a log file is missing, too short or too long (STORE_FILE_*).

    With `end`, only files that start before it are checked. If the log is `torn`, because its
    broker is running or was killed, the last file may be empty.
    """
    for start in _missing(log, end):
        raise missing_file(log, start, RESTORE_FROM_BACKUP)
    _check_lengths(log, end, VERIFY_FIRST, torn=torn)


def check_queue_files(queue: ConsumeQueue, *, torn: bool) -> None:
    """Raise the same errors for the files of a queue."""
    for start in _missing(queue.run, None):
        raise missing_file(queue.run, start, REBUILD_QUEUES)
    _check_lengths(queue.run, None, REBUILD_QUEUES, torn=torn)


def check_ends_in_log(queue: ConsumeQueue, log: FileQueue) -> None:
    """Raise StoreDamagedError if the queue continues in the file after the log's last one.

    Only valid after a clean shutdown: after a crash a queue may be ahead of the log.
    """
    starts = log.starts()
    end = starts[-1] + log.file_bytes if starts else 0
    start = missing_log_file(queue, log, end)
    if start is not None:
        raise missing_file(log, start, RESTORE_FROM_BACKUP)


def _missing(run: FileQueue, end: int | None) -> list[int]:
    """Return the start offsets of files that are missing between two others, or before `end`."""
    found = _gaps(run, end)
    # If files were deleted while the folder was listed, the second listing shows no gap.
    return sorted(found & _gaps(run, end)) if found else []


def _gaps(run: FileQueue, end: int | None) -> set[int]:
    starts = _starts(run, end)
    if end is not None and not starts:
        if run.starts():
            raise FileNotFoundError(errno.ENOENT, "deleted by cleaning", os.fspath(run.folder))
        # A new log has no file and starts at the offset of one file size.
        return {run.start_of(end - 1)} if end > run.file_bytes else set()
    following = starts[1:] if end is None else [*starts[1:], end]
    expected = [start + run.file_bytes for start in starts]
    return {wanted for wanted, there in zip(expected, following, strict=False) if wanted < there}


def _starts(run: FileQueue, end: int | None) -> list[int]:
    return [start for start in run.starts() if end is None or start < end]


def _check_lengths(run: FileQueue, end: int | None, remedy: str, *, torn: bool) -> None:
    starts = _starts(run, end)
    if torn and starts and not (run.folder / file_name(starts[-1])).stat().st_size:
        starts.pop()
    for start in starts:
        if wrong := wrong_length(run, start, remedy):
            raise wrong
