"""Infers the segment size of a store that does not record it, from its files.

All segments of a queue or log have the same size, and their names are their start offsets. So the
size follows both from the lengths and from the names. If some of them are wrong, the size with the
fewest contradictions is chosen. A single file only has its length.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from pyrocket.disk.layout import Layout, parse_file_name

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
    likely = {size for each in (have, apart) for size, _ in each.most_common(_CANDIDATES)}

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
    found = {length for lengths in known for length in lengths.values()}
    other = found.pop() if len(found) == 1 else 0
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
