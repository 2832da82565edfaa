"""Copies a store's files: as hard links if they never change, otherwise as copies."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.io import data_from
from pyrocket.disk.os_errors import os_error_remedy
from pyrocket.errors import StoreDamagedError, StorePermissionError, StoreUnavailableError

_BLOCK_BYTES = 4 * 1024 * 1024
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES)


@dataclass
class Copies:
    """Creates and counts links and copies; `unlinkable` is the reason why a link failed.

    Copies are durable at once, links after `sync_links`. `progress` is called with the number of
    bytes copied since the last call, including holes, and with the path of the source file.
    """

    copied_files: int = 0
    copied_bytes: int = 0
    unlinkable: str = ""
    progress: Callable[[int, Path], None] = lambda more, file: None
    _links: list[Path] = field(default_factory=list)

    def link(self, source: Path, target: Path) -> None:
        """Link a file that never changes, or copy it if links are not possible."""
        try:
            io.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.unlinkable = error.strerror or str(error)
            self.copy(source, target)
            return
        self._links.append(target)
        self.progress(source.stat().st_size, source)

    @property
    def linked_files(self) -> int:
        return len(self._links)

    def sync_links(self) -> None:
        for path in self._links:
            io.sync_file(path)

    def copy(self, source: Path, target: Path, end: int | None = None) -> None:
        """Copy the first `end` bytes of a file; the rest reads as zeros, holes stay holes."""
        create = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        with io.opened(source, os.O_RDONLY) as origin, io.opened(target, create) as made:
            status = os.fstat(origin)
            stop = status.st_size if end is None else end
            io.set_length(made, status.st_size)
            reported, position = 0, data_from(source, 0)
            while position < stop:
                data = _read(origin, source, min(_BLOCK_BYTES, stop - position), position)
                if data.strip(b"\0"):
                    io.write_at(made, data, position)
                    self.copied_bytes += len(data)
                position = data_from(source, position + (len(data) or stop))
                self.progress(min(position, status.st_size) - reported, source)
                reported = min(position, status.st_size)
            io.sync(made)
        io.set_time(target, status.st_mtime_ns // 1_000_000)
        self.progress(status.st_size - reported, source)
        self.copied_files += 1


def _read(descriptor: int, path: Path, length: int, position: int) -> bytes:
    """Read bytes; add the file's name to an error."""
    try:
        return os.pread(descriptor, length, position)
    except OSError as error:
        error.filename = str(path)
        raise


class SourceChangedError(Exception):
    """Files of the source were created or deleted during the copy."""


@contextmanager
def translating_copy_errors(source: Path, target: Path) -> Iterator[None]:
    """Translate errors of the operating system: those of the source and those of the target.

    Raises StoreUnavailableError, StorePermissionError, and SourceChangedError if a file of the
    source was deleted.
    """
    try:
        yield
    except StoreDamagedError as error:
        # A file on the path of the target does not mean that the source is damaged.
        if isinstance(error.__cause__, OSError) and not _is_about(error.__cause__, source):
            raise _target_failed(error.__cause__, target) from error
        raise
    except OSError as error:
        cause = error.__cause__ if isinstance(error, StorePermissionError) else error
        if not _is_about(cause, source):
            raise _target_failed(error, target) from error
        if isinstance(error, FileNotFoundError):
            raise SourceChangedError from error
        if isinstance(error, StorePermissionError):
            raise
        raise StoreUnavailableError(
            f"{source} could not be read: {error}.",
            remedy=os_error_remedy(error, "try again"),
            code="READ_FAILED",
        ) from error


def _is_about(error: BaseException | None, source: Path) -> bool:
    """Whether an error is about a file below `source`.

    An error of link() names both files; unless a file is missing, it is about the target.
    """
    if not isinstance(error, OSError) or not isinstance(error.filename, str | bytes | Path):
        return False
    if error.filename2 is not None and not isinstance(error, FileNotFoundError):
        return False
    return Path(os.fsdecode(error.filename)).is_relative_to(source)


def _target_failed(error: OSError, target: Path) -> StoreUnavailableError:
    if isinstance(error, StorePermissionError):
        remedy = "Name a target in a folder that this user may write to."
        return StorePermissionError(f"{target} cannot be created: {error.message}", remedy=remedy)
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return StoreUnavailableError(
        f"{target} could not be written: {error}. The incomplete copy was deleted.",
        remedy="Free space there, or name a target on another file system."
        if is_full
        else "Name a target that can be created, and check its file system.",
        code="WRITE_FAILED",
    )
