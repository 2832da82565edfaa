"""The groups whose members are all in this process, which consumes without a broker process."""

import os
import threading
from pathlib import Path

from pyrocket.disk.io import make_directory, open_file, read_or_none, write_at
from pyrocket.disk.lock import FileLock
from pyrocket.errors import StoreLockedError


class HeldGroups:
    """The locks of groups. Safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        """`folder` has a lock file for each group."""
        self._folder, self._lock, self._held = folder, threading.Lock(), dict[str, FileLock]()

    def hold(self, group: str) -> None:
        """Hold a group for this process.

        The members of another process would not know of these, and consume the same messages.
        Raises StoreLockedError (GROUP_IN_USE).
        """
        with self._lock:
            if group in self._held:
                return
            make_directory(self._folder)
            lock = FileLock(self._folder / group)
            if not lock.try_lock():
                lock.close()
                raise _in_use(group, lock.path)
            _write_pid(lock.path)
            self._held[group] = lock

    def release(self, group: str) -> None:
        """Release a group that has no more members in this process."""
        with self._lock:
            if (lock := self._held.pop(group, None)) is not None:
                lock.close()

    def close(self) -> None:
        """Release all groups."""
        for group in [*self._held]:
            self.release(group)


def _write_pid(path: Path) -> None:
    """Write the id of this process into a lock file, for the error in another process."""
    descriptor = open_file(path, os.O_WRONLY | os.O_TRUNC)
    try:
        write_at(descriptor, b"%d" % os.getpid(), 0)
    finally:
        os.close(descriptor)


def _in_use(group: str, file: Path) -> StoreLockedError:
    holder = (read_or_none(file) or b"").decode(errors="replace")
    return StoreLockedError(
        f"the group {group!r} is consumed by process {holder}, over the same directory.",
        remedy="Start the group's consumers in one process, or run `pyrocket broker` and use its"
        " endpoint.",
        code="GROUP_IN_USE",
    )
