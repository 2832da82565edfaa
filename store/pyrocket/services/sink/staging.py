"""The folder of staged files: one folder a query, and files to be used again.

A name says batch, partition and attempt, and ends in something that no other file has. A file
that has been published is kept for the next one who stages, a few files of each store: to write
over one that is in memory costs a tenth of making a new one.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.services.sink.batch import SinkBatch
from pyrocket.services.sink.staged_file import StagedWriter

LEFTOVERS_MS = 7 * 24 * 3_600_000
"""So old is a file that nobody will publish any more."""

CLEAN_EVERY_MS = 3_600_000
_FREE = "free"
_CLEANED = "cleaned"
_MAX_FREE_FILES = 16
_MAX_FREE_BYTES = 1024 * 1024 * 1024


class Leftovers(NamedTuple):
    """How many files nobody will publish any more, and their bytes."""

    files: int = 0
    bytes: int = 0


class StagingArea:
    """The staged files of one store. Needs no lock: every file has one owner at a time."""

    def __init__(self, layout: Layout) -> None:
        self.root = layout.staging
        self._free = layout.staging / _FREE

    def create(self, batch: SinkBatch, partition: int, attempt: int) -> tuple[str, StagedWriter]:
        """Make a file, or take a free one; return its name below the folder, and its writer."""
        name = f"{batch.batch:020d}-{partition:05d}-{attempt}-{uuid.uuid4().hex}"
        folder = self.root / batch.key
        while True:
            io.make_directory(folder)
            with suppress(FileNotFoundError):  # Whoever cleans up has removed the folder.
                writer = StagedWriter(folder / name, self._open_new(folder / name))
                return f"{batch.key}/{name}", writer

    def _open_new(self, path: Path) -> int:
        if self._take_free(path):
            return io.open_file(path, os.O_RDWR)
        return io.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _take_free(self, path: Path) -> bool:
        for free in _files(self._free):
            with suppress(FileNotFoundError):  # Somebody else has taken it.
                io.rename(free, path)
                return True
        return False

    def path(self, name: str) -> Path:
        """Return where a staged file is. Raises ValueError for what is no name of one."""
        folder, _, file = name.partition("/")
        if not file or {"/", "\0"} & set(file) or folder in ("..", ".", "") or file in ("..", "."):
            raise ValueError(f"{name!r} is no staged file")
        return self.root / folder / file

    def date(self, name: str, now_ms: int) -> None:
        """Note that a file was finished now: it is cleaned up by its age."""
        for path in self._parts(name):
            with suppress(FileNotFoundError):  # Another run has published the batch meanwhile.
                io.set_time(path, now_ms)

    def remove(self, name: str) -> None:
        """Remove a file that nobody will publish."""
        for path in self._parts(name):
            io.unlink(path)

    def _parts(self, name: str) -> list[Path]:
        """Return the file and its segments, those that are there."""
        path = self.path(name)
        return [one for one in _files(path.parent) if one.name.partition(".")[0] == path.name]

    def give_back(self, name: str) -> None:
        """Let others have a file that was published, or remove it if there are enough."""
        path = self.path(name)
        for part in self._parts(name):
            if part != path:
                io.unlink(part)
        free = [one.stat().st_size for one in _files(self._free)]
        with suppress(FileNotFoundError):
            room = _MAX_FREE_BYTES - sum(free) - path.stat().st_size
            if len(free) >= _MAX_FREE_FILES or room < 0:
                io.unlink(path)
                return
            io.make_directory(self._free)
            io.rename(path, self._free / uuid.uuid4().hex)

    def remove_up_to(self, name: str) -> None:
        """Remove what a query has staged for the batch of this file and those before."""
        published = self.path(name)
        for path in _files(published.parent):
            if _batch_of(path) <= _batch_of(published):
                io.unlink(path)

    def remove_folder_of(self, name: str) -> None:
        """Remove the folder of a file that has gone, unless there are others in it."""
        with suppress(OSError):
            io.remove_directory(self.path(name).parent)

    def clean(self, now_ms: int, *, at_once: bool = False) -> Leftovers:
        """Remove files that are left over; return how many there were.

        At most every CLEAN_EVERY_MS, unless `at_once`.
        """
        if not self.root.is_dir() or not (at_once or self._is_due(now_ms)):
            return Leftovers()
        old = self._old_files(now_ms)
        for path, _ in old:
            io.unlink(path)
        for folder in self._folders():
            with suppress(OSError):
                io.remove_directory(folder)
        return _sum(old)

    def _is_due(self, now_ms: int) -> bool:
        """Whether it is time; if so, the next time is CLEAN_EVERY_MS later, for all processes."""
        mark = self.root / _CLEANED
        if 0 <= now_ms - _time_ms(mark) < CLEAN_EVERY_MS:
            return False
        os.close(io.open_file(mark, os.O_WRONLY | os.O_CREAT))
        io.set_time(mark, now_ms)
        return True

    def leftovers(self, now_ms: int) -> Leftovers:
        """Return how many files are left over; removes nothing."""
        return _sum(self._old_files(now_ms))

    def remove_free(self) -> None:
        """Remove the files that are kept for the next one who stages: their space is needed."""
        for path in _files(self._free):
            io.unlink(path)

    def _old_files(self, now_ms: int) -> list[tuple[Path, int]]:
        """Return the files that are left over, and their bytes."""
        old = []
        for path in (path for folder in self._folders() for path in _files(folder)):
            with suppress(FileNotFoundError):  # Published or removed meanwhile.
                status = path.stat()
                if status.st_mtime_ns // 1_000_000 < now_ms - LEFTOVERS_MS:
                    old.append((path, status.st_blocks * 512))
        return old

    def _folders(self) -> list[Path]:
        return [path for path in _files(self.root) if path.is_dir()]


def _files(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from list(folder.iterdir())


def _sum(files: Sequence[tuple[Path, int]]) -> Leftovers:
    return Leftovers(len(files), sum(size for _, size in files))


def _batch_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _time_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
