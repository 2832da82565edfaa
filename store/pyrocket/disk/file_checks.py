"""Checks for missing, short and long files of the log or of a queue.

Opening a store, recovery, readers, snapshots, verify and repair all use these functions, so they
agree on which files are wrong. Cleaning deletes the files of a log or queue in ascending order, and
deleting a topic deletes files in descending order. A file that is missing between two others was
therefore lost. Files that are deleted during a check are not reported, but the check may raise
FileNotFoundError.
"""

import errno
import os
import stat

from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.layout import file_name
from pyrocket.errors import StoreDamagedError


def check_files(run: FileQueue, remedy: str, *, end: int | None = None) -> None:
    """Raise StoreDamagedError if a file is missing, too short or too long (STORE_FILE_*).

    With `end`, only files that start before it are checked, and all of them must exist.
    """
    for start in missing_files(run, end):
        raise missing_file(run, start, remedy)
    check_lengths(run, remedy, end=end)


def check_lengths(run: FileQueue, remedy: str, *, end: int | None = None) -> None:
    """Raise StoreDamagedError (STORE_FILE_LENGTH) if a file is too short or too long."""
    for start in _starts(run, end):
        if wrong := wrong_length(run, start, remedy):
            raise wrong


def missing_files(run: FileQueue, end: int | None = None) -> list[int]:
    """Return the start of the first file of each gap between two files, or before `end`."""
    found = _gaps(run, end)
    # If files were deleted while the folder was listed, the second listing shows no gap.
    return sorted(found & _gaps(run, end)) if found else []


def missing_file(run: FileQueue, start: int, remedy: str, what: str = "") -> StoreDamagedError:
    """Return the error for a file that does not exist, or is empty (STORE_FILE_MISSING)."""
    path = run.folder / file_name(start)
    fault = f"{path} is empty" if path.exists() else f"{run.folder} lacks the file {path.name}"
    return StoreDamagedError(f"{fault}{what}.", remedy=remedy, code="STORE_FILE_MISSING")


def wrong_length(
    run: FileQueue, start: int, remedy: str, what: str = ""
) -> StoreDamagedError | None:
    """Return the error for a file that is too short or too long (STORE_FILE_LENGTH), or None.

    Raises FileNotFoundError.
    """
    path = run.folder / file_name(start)
    status = path.stat()
    message = f"{path}{what} has {status.st_size} bytes, not {run.file_bytes}."
    if not stat.S_ISREG(status.st_mode):
        message = f"{path} is not a file."
    elif status.st_size == run.file_bytes:
        return None
    return StoreDamagedError(message, remedy=remedy, code="STORE_FILE_LENGTH")


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
