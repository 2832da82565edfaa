"""Being present in a directory: the shared words, and a claim that a Java broker respects.

Every writer holds a shared lock on RocketMQ's `lock` file for as long as it has the store open, so
that a broker, which wants it alone, is refused. Whoever finds itself alone may recover.
"""

import os
from collections.abc import Callable

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock, lock_identity
from pyrocket.disk.machine import refuse_network_file_system
from pyrocket.disk.root_checks import check_fixed_names
from pyrocket.disk.shared_state import FAILED, HOLDER, NEXT_DUE, PUBLISHED, SharedState
from pyrocket.errors import StoreFailedError, StoreLockedError


class WriterSession:
    """One process's presence as a writer; made in a turn. Raises StoreLockedError."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._process = layout, os.getpid()
        SharedState.create(layout.state, layout.scratch)
        self.page = SharedState(layout.state, writable=True)
        self._lock = FileLock(layout.lock, content=b"lock")
        if not self._lock.try_lock(shared=True):
            self.close()
            raise StoreLockedError(
                f"another process, such as a Java broker, holds {layout.lock} alone.",
                remedy="Stop it, or open the store read-only: that works at any time.",
            )

    def sign(self) -> None:
        """Note that this process has the turn."""
        self.page[HOLDER] = self._process

    def check_place(self) -> None:
        """Refuse to write into whatever has taken this store's place."""
        if not self.page.is_file_at(self._layout.state):
            raise StoreFailedError(
                f"{self._layout.root} was removed or replaced while it was open.",
                remedy="Close it and open it again.",
                code="STORE_REPLACED",
            )

    @property
    def is_here(self) -> bool:
        """Whether this is the process that came in, and the directory still the same."""
        return os.getpid() == self._process and self.page.is_file_at(self._layout.state)

    def state_is_valid(
        self, store: bytes, ends_at: Callable[[int], bool], agree: Callable[[], bool]
    ) -> bool:
        """Whether nothing is to be recovered: the same boot, or a clean end in an earlier one.

        `ends_at` tells if the log looks as if it ended at an offset, `agree` if the queues look
        as if they had all of it. Only who is alone asks: others' appends are not finished.
        """
        seal = store, self._lock_identity()
        if self.page.is_valid(*seal):
            return not self.page[FAILED] and (not self._is_alone() or self._agrees(agree))
        if self._layout.abort.exists() or not self.page.is_clean(*seal):
            return False
        if not ends_at(self.page[PUBLISHED]) or not self._agrees(agree):
            return False
        self.page.validate_state(*seal)
        return True

    def _agrees(self, agree: Callable[[], bool]) -> bool:
        if not self.page.is_sound() or not agree():
            return False
        # Who looks early does no harm; a damaged word would have everything come too late.
        self.page[NEXT_DUE] = 0
        self.page.reset_flush_counters()
        return True

    def _is_alone(self) -> bool:
        try:
            return self.claim()
        finally:
            self.share()

    def validate_state(self, store: bytes) -> None:
        """Declare the words true."""
        self.page.validate_state(store, self._lock_identity())

    def claim(self) -> bool:
        """Have the store alone, if nobody else is present."""
        return self._lock.try_lock()

    def share(self) -> None:
        """Let others in again."""
        self._lock.try_lock(shared=True)

    def leave(self) -> None:
        """Let go of the lock; the words stay readable."""
        self._lock.unlock()

    def close(self) -> None:
        """Leave for good."""
        self._lock.close()
        self.page.close()

    def _lock_identity(self) -> tuple[int, int]:
        return lock_identity(self._layout.lock) or (0, 0)


def make_folders(layout: Layout, mode: int | None) -> None:
    """Make the folders of a store where they are missing.

    Raises UnsupportedError, StoreDamagedError where links or devices have names of the store.
    A directory that is no store yet gets the permissions `mode`.
    """
    io.make_directory(layout.root)
    check_fixed_names(layout)
    if mode is not None and not layout.looks_like_a_store:
        io.set_mode(layout.root, mode)
    refuse_network_file_system(layout.root)
    for folder in (layout.own, layout.scratch, layout.commit_log, layout.consume_queues):
        io.make_directory(folder)


def last_holder(layout: Layout) -> int:
    """Return the process that took the last turn; 0 where nobody has."""
    try:
        page = SharedState(layout.state, writable=False)
    except FileNotFoundError:
        return 0
    try:
        return page[HOLDER]
    finally:
        page.close()
