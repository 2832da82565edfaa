"""Checks for missing, short and long files of the log or of a queue.

Opening a store, recovery, readers, snapshots, verify and repair all use these functions, so they
agree on which files are wrong. Cleaning deletes the files of a log or queue in ascending order, and
deleting a topic deletes files in descending order. A file that is missing between two others was
therefore lost. Files that are deleted during a check are not reported, but the check may raise
FileNotFoundError.

All segments of a queue or log have the same size, and their names are their start offsets. So the
size of a store that does not record it follows both from the lengths and from the names. If some of
them are wrong, the size with the fewest contradictions is chosen. A single file only has its
length.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from pyrocket.disk.file_queue import FileQueue, file_name, parse_file_name
from pyrocket.disk.layout import Layout
from pyrocket.errors import StoreDamagedError

Lengths = dict[int, int]
"""The files of one folder: start offsets, ascending, and lengths."""

_CANDIDATES, _FOLDERS = 8, 64
"""Maximum number of sizes that are compared, and of folders that are read."""


def queue_folders(layout: Layout, *, in_order: bool = False) -> Iterator[Path]:
    """Yield the folders that may be queues, in directory order or by name."""
    order = _by_name if in_order else iter
    for topic in order(_entries(layout.consume_queues)):
        for queue in order(_entries(topic.path)):
            yield Path(queue.path)


def _by_name(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    return iter(sorted(entries, key=lambda entry: entry.name))


def lengths_in(folder: Path) -> Lengths:
    """Return the files of a folder, except those with other names."""
    return dict(sorted(_files(folder)))


def usual_size(folders: Iterable[Path], preferred: int, *, is_size: Callable[[int], bool]) -> int:
    """Return the size with the fewest contradictions; 0 without files or without a valid size.

    If several sizes have the fewest contradictions, returns `preferred` if it is one of them,
    otherwise the length that most files have, otherwise the largest size, because a file is more
    likely to be truncated than to have grown. Reads only the first 64 folders with files, because a
    reader should not open thousands of queues for this.
    """
    known = list(islice(filter(None, map(lengths_in, folders)), _FOLDERS))
    have = Counter(length for lengths in known for length in lengths.values())
    apart = Counter(end - start for lengths in known for start, end in pairwise(lengths))
    likely = {size for counter in (have, apart) for size, _ in counter.most_common(_CANDIDATES)}

    def rank(size: int) -> tuple[int, bool, int, int]:
        return -_faults(known, size), size == preferred, have[size], size

    return max((size for size in likely if size and is_size(size)), key=rank, default=0)


def other_size(folders: Iterable[Path], size: int, *, is_size: Callable[[int], bool]) -> int:
    """Return the size of all files if it is known to differ from `size`; otherwise 0.

    Stops at the first file of length `size`. A single file that is too short may be truncated.
    """
    known = []
    for folder in folders:
        files = {}
        for start, length in _files(folder):
            if length == size:
                return 0
            files[start] = length
        known.append(dict(sorted(files.items())))
    sizes = {length for lengths in known for length in lengths.values()}
    other = sizes.pop() if len(sizes) == 1 else 0
    if not is_size(other) or _faults(known, other):
        return 0
    return other if other > size or sum(map(len, known)) > 1 else 0


def _faults(folders: Sequence[Lengths], size: int) -> int:
    """Count files of other lengths, inconsistent names, and gaps."""
    return sum(
        sum(length != size for length in lengths.values())
        + sum(start % size != 0 for start in lengths)
        + sum(end - start != size for start, end in pairwise(lengths))
        for lengths in folders
    )


def _files(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield start offsets and lengths of files; other processes may delete files meanwhile."""
    for entry in _entries(folder):
        start = parse_file_name(entry.name)
        if start is None:
            continue
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield start, status.st_size


def _entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


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
    gaps = _gaps(run, end)
    # If files were deleted while the folder was listed, the second listing shows no gap.
    return sorted(gaps & _gaps(run, end)) if gaps else []


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
        if there := run.starts():
            if there[0] > end:
                raise FileNotFoundError(errno.ENOENT, "deleted by cleaning", os.fspath(run.folder))
            return set()  # Nothing was written to the only file, which starts there.
        # A new log has no file and starts at the offset of one file size.
        return {run.start_of(end - 1)} if end > run.file_bytes else set()
    following = starts[1:] if end is None else [*starts[1:], end]
    expected = [start + run.file_bytes for start in starts]
    return {wanted for wanted, there in zip(expected, following, strict=False) if wanted < there}


def _starts(run: FileQueue, end: int | None) -> list[int]:
    return [start for start in run.starts() if end is None or start < end]
