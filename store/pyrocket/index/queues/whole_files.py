"""Whether the files of a log or a queue are all there, and as long as they should be.

Others may remove some while this looks: a cleaning takes files from the first on, the end of a
topic from the last on. Those are not missing. All of it may raise FileNotFoundError if one goes.
"""

import errno
import os

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name
from pyrocket.errors import REBUILD_QUEUES, VERIFY_FIRST
from pyrocket.index.queues.consume_queue import ConsumeQueue
from pyrocket.index.queues.lost_files import FROM_A_BACKUP, lacks_file, lost_file, wrong_length


def check_log_files(log: FileQueue, end: int | None, *, torn: bool) -> None:
    """Raise StoreDamagedError if a log file is missing, short or long (STORE_FILE_*).

    With `end`, those count that begin before it. In a `torn` log, of a broker that runs or was
    killed, the last one may be empty still.
    """
    for start in _missing(log, end):
        raise lacks_file(log, start, FROM_A_BACKUP)
    _check_lengths(log, end, VERIFY_FIRST, torn=torn)


def check_queue_files(queue: ConsumeQueue, *, torn: bool) -> None:
    """Raise the same about a queue's files."""
    for start in _missing(queue.run, None):
        raise lacks_file(queue.run, start, REBUILD_QUEUES)
    _check_lengths(queue.run, None, REBUILD_QUEUES, torn=torn)


def check_ends_in_log(queue: ConsumeQueue, log: FileQueue) -> None:
    """Raise the same if the queue goes on in the file that would be the log's next.

    Only after a clean end: after any other a queue may be ahead of the log.
    """
    starts = log.starts()
    gone = lost_file(queue, log, starts[-1] + log.file_bytes if starts else 0)
    if gone is not None:
        raise lacks_file(log, gone, FROM_A_BACKUP)


def _missing(run: FileQueue, end: int | None) -> list[int]:
    """Return where files begin that are missing between two others, or before `end`."""
    found = _gaps(run, end)
    # Files may have gone while the folder was listed: then a second look finds no gap there.
    return sorted(found & _gaps(run, end)) if found else []


def _gaps(run: FileQueue, end: int | None) -> set[int]:
    starts = _starts(run, end)
    if end is not None and not starts:
        if run.starts():
            raise FileNotFoundError(errno.ENOENT, "cleaned away", os.fspath(run.folder))
        # A new log has no file, and begins at one file size.
        return {run.start_of(end - 1)} if end > run.file_bytes else set()
    behind = starts[1:] if end is None else [*starts[1:], end]
    due = [start + run.file_bytes for start in starts]
    return {wanted for wanted, there in zip(due, behind, strict=False) if wanted < there}


def _starts(run: FileQueue, end: int | None) -> list[int]:
    return [start for start in run.starts() if end is None or start < end]


def _check_lengths(run: FileQueue, end: int | None, remedy: str, *, torn: bool) -> None:
    starts = _starts(run, end)
    if torn and starts and not (run.folder / file_name(starts[-1])).stat().st_size:
        starts.pop()
    for start in starts:
        if wrong := wrong_length(run, start, remedy):
            raise wrong
