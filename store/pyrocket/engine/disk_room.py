"""What a store's disk accepts: the room for appends, a broker's reserve, and the last failed write.

The reserve is the file `pyrocket/reserve`. Any writer that finds the disk full deletes it, and the
space is then used to open the store, for acks and commits, and for cleaning. A broker creates it
again as soon as there is room. Messages never use the reserve: while it is missing, a broker
refuses them as if it were there. A writer without a broker does not create it.

    free space                      reserve    what a broker accepts
    ------------------------------  ---------  ---------------------------------------------------
    more than an append needs       there      everything
    less                            there      everything except messages: DISK_FULL
    less than LOW_BYTES             deleted    the same, and services pause
    less than LOW_BYTES after that  deleted    reads and cleaning
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from pyrocket.base.arguments import format_size
from pyrocket.base.clock import Clock
from pyrocket.base.config import Retention
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.machine import DiskUsage, disk_usage, free_bytes
from pyrocket.disk.os_errors import WRITE_FAILED, translating_os_errors
from pyrocket.errors import PyrocketError, StoreUnavailableError

RESERVE_BYTES = 16 << 20
LOW_BYTES = 4 << 20
"""With less free space, the disk is full: the reserve is deleted."""

_BLOCK_BYTES = 1 << 20
_SPARE_FILES = 2
_FREE_SPACE = (
    "Free some space: `pyrocket store clean` removes the oldest messages, `pyrocket store"
    " retention` sets how long to keep them."
)
_log = logging.getLogger(__name__)


class DiskRoom:
    """The room for appends on the disks of one store, under a retention or without one."""

    def __init__(self, layout: Layout, log_file_bytes: int, *, keeps_reserve: bool = False) -> None:
        """`keeps_reserve` is whether a broker serves the store."""
        self._layout, self._log_file_bytes = layout, log_file_bytes
        self._keeps_reserve = keeps_reserve

    def keep_reserve(self) -> None:
        """Create the reserve, or create it later if the disk is full. For brokers only."""
        self._keeps_reserve = True
        try:
            self.restore_reserve()
        except OSError as error:
            _log.warning("%s was not created: %s", self._layout.reserve, error)

    def restore_reserve(self) -> None:
        """Create the reserve if a broker keeps it and there is room for it. Raises OSError."""
        if self._lacking and free_bytes(self._layout.own) >= 2 * RESERVE_BYTES:
            # Written, because a file system may neither allocate holes nor store zeros.
            block = os.urandom(_BLOCK_BYTES)
            parts = ((at, block) for at in range(0, RESERVE_BYTES, _BLOCK_BYTES))
            io.install_file(self._layout.reserve, self._layout.scratch, parts)

    def check_usable(self) -> None:
        """Delete the reserve if the disk is full.

        Raises StoreUnavailableError (DISK_FULL) if a broker has used up the reserve.
        """
        if delete_reserve_if_full(self._layout) and self._lacking:
            free = format_size(free_bytes(self._layout.own))
            raise _full(
                f"{self._layout.root} has {free} free, and the reserve of the broker is used up:"
                " until there is more space, it can only read and clean.",
                "Free some space: `pyrocket store clean` removes the oldest messages.",
            )

    def check_reserved(self) -> None:
        """Delete the reserve if the disk is full; services must not use its space.

        Raises StoreUnavailableError (DISK_FULL) if a broker keeps a reserve and it is missing.
        """
        self.check_usable()
        if self._lacking:
            raise _full(f"{self._layout.root} has no room for the reserve of the broker.")

    def is_full(self, policy: Retention | None, more: int = 0) -> bool:
        """Whether appends of messages of `more` bytes are refused."""
        if policy is None:
            return not self.fits(more)
        return self.usage().ratio > policy.full_ratio

    def check_ratio(self, policy: Retention) -> None:
        """Raise StoreUnavailableError (DISK_FULL) if the disk is fuller than the policy allows."""
        usage = self.usage()
        if usage.ratio > policy.full_ratio:
            raise _full(
                f"{self._layout.root} is {usage.ratio:.0%} full; above {policy.full_ratio:.0%}"
                " appends are refused.",
                "Free some space, or shorten the retention.",
            )

    def fits(self, more: int) -> bool:
        """Whether two log files and `more` bytes fit on the disk, and the reserve is not needed."""
        needed = self._spare_bytes + more + self._missing_bytes
        return free_bytes(self._layout.commit_log) >= needed

    def check_fits(self, more: int) -> None:
        """Raise StoreUnavailableError (DISK_FULL) unless two log files and `more` bytes fit."""
        if self.fits(more):
            return
        needs = [f"two log files of {format_size(self._log_file_bytes)}"]
        if self._spare_bytes > _SPARE_FILES * self._log_file_bytes:
            needs = [format_size(self._spare_bytes)]
        needs += [f"{format_size(more)} of messages"] if more else []
        needs += [f"the reserve of {format_size(RESERVE_BYTES)}"] if self._lacking else []
        free = format_size(free_bytes(self._layout.commit_log))
        raise _full(
            f"{self._layout.commit_log} has {free} free; to append, {' and '.join(needs)} have to"
            " fit."
        )

    def usage(self) -> DiskUsage:
        """Return the usage of the fullest disk of the store, as if the reserve were there."""
        fullest = disk_usage([self._layout.commit_log, self._layout.consume_queues])
        return DiskUsage(fullest.used_bytes + self._missing_bytes, fullest.total_bytes)

    @property
    def _spare_bytes(self) -> int:
        """The size of two log files; with a reserve, more than what deletes it."""
        files = _SPARE_FILES * self._log_file_bytes
        return max(files, 2 * LOW_BYTES) if self._keeps_reserve else files

    @property
    def _missing_bytes(self) -> int:
        return RESERVE_BYTES if self._lacking else 0

    @property
    def _lacking(self) -> bool:
        """Whether a broker keeps a reserve and it is missing."""
        return self._keeps_reserve and not _exists(self._layout.reserve)


def _full(state: str, remedy: str = _FREE_SPACE) -> StoreUnavailableError:
    return StoreUnavailableError(f"the file system of {state}", remedy=remedy, code="DISK_FULL")


RETRY_MS = 10_000
"""The interval at which a write is tried again: a broker that is not healthy gets no appends."""

_CODES = ("WRITE_FAILED", "QUEUES_NOT_WRITTEN")


class WriteFailure:
    """The error of the last write. Safe to share between threads."""

    def __init__(self, scratch: Path, clock: Clock) -> None:
        """`scratch` is the store's folder of incomplete files."""
        self._scratch, self._clock, self._tried_ms = scratch, clock, 0
        self.text = ""

    @contextmanager
    def noting(self, root: Path) -> Iterator[None]:
        """Translate OSErrors of the `with` block, and keep the error of a failed write."""
        try:
            with translating_os_errors(root, "try again", what=WRITE_FAILED):
                yield
        except StoreUnavailableError as error:
            if error.code in _CODES:
                self.text, self._tried_ms = str(error), self._clock()
            raise

    def end(self) -> None:
        """Forget the error after a write that succeeded."""
        self.text = ""

    def retry_if_due(
        self, section: Callable[[], AbstractContextManager[None]], write: Callable[[], None]
    ) -> None:
        """Try to `write` and to create a file in a section, RETRY_MS after a failure."""
        since_ms = self._clock() - self._tried_ms
        if not self.text or 0 <= since_ms < RETRY_MS:
            return
        with suppress(PyrocketError), section():  # `noting` keeps a new error.
            write()
            io.install_file(self._scratch / "written", self._scratch, [(0, b"0")])
            io.unlink(self._scratch / "written")
            self.end()


def delete_reserve_if_full(layout: Layout) -> bool:
    """Delete the reserve if the disk is full; return whether the disk is full without it."""
    try:
        if free_bytes(layout.own) >= LOW_BYTES:
            return False
    except FileNotFoundError:  # The store is being created.
        return False
    if _exists(layout.reserve):
        io.unlink(layout.reserve)
        _log.warning("the disk is full: %s was deleted", layout.reserve)
    return free_bytes(layout.own) < LOW_BYTES


def _exists(path: Path) -> bool:
    try:
        return os.stat(path).st_size >= RESERVE_BYTES
    except FileNotFoundError:
        return False
