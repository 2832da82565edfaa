"""A writer session: the shared state, and a lock on the directory that RocketMQ brokers respect.

Every writer holds a shared lock on RocketMQ's `lock` file while it has the store open. A broker
locks the file exclusively, and therefore fails to start. A writer that gets the lock exclusively
may recover the store.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress

from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock, WriteLock
from pyrocket.disk.machine import refuse_network_file_system
from pyrocket.disk.root_checks import check_fixed_names
from pyrocket.disk.shared_state import (
    FAILED,
    HOLDER,
    NEXT_DUE,
    PUBLISHED,
    SharedState,
    lock_identity,
)
from pyrocket.errors import StoreFailedError, StoreLockedError
from pyrocket.metadata.broker_file import BrokerFile

_BESIDE_TIMEOUT_MS = 30_000


class WriterSession:
    """One process's session as a writer; created under the write lock. Raises StoreLockedError."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._process = layout, os.getpid()
        SharedState.create(layout.state, layout.scratch)
        self.page = SharedState(layout.state, writable=True)
        self._lock = FileLock(layout.lock, content=b"lock")
        self._last_holder = self.page[HOLDER]
        if not self._lock.try_lock(shared=True):
            self.close()
            raise _locked_error(layout)

    def sign(self) -> None:
        """Record this process as the holder of the write lock."""
        self.page[HOLDER] = self._process

    def exclude_others(self, wanted: bool) -> None:
        """If wanted, exclude other writers until the session ends. Raises StoreLockedError."""
        if wanted and not self.claim():
            raise StoreLockedError(
                f"{self._layout.root} is open for writing in another process; process"
                f" {self._last_holder} took the write lock last.",
                remedy="Close it there, or wait until it is closed.",
            )

    def check_directory(self) -> None:
        """Raise StoreFailedError (STORE_REPLACED) if the directory is no longer this store."""
        if not self.page.is_file_at(self._layout.state):
            raise StoreFailedError(
                f"{self._layout.root} was removed or replaced while it was open.",
                remedy="Close it and open it again.",
                code="STORE_REPLACED",
            )

    @property
    def is_in_place(self) -> bool:
        """Whether this process opened the session and the directory has not been replaced."""
        return os.getpid() == self._process and self.page.is_file_at(self._layout.state)

    def state_is_valid(
        self, store: bytes, ends_at: Callable[[int], bool], agree: Callable[[], bool]
    ) -> bool:
        """Returns whether the state is valid, in this boot or after a clean shutdown.

        `ends_at` returns whether the log appears to end at an offset, `agree` whether the queues
        appear to be complete. In the same boot, `agree` is called only if no other writer has the
        store open, because its appends may be unfinished.
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
        # An early check is harmless; a corrupt due time would delay every delivery.
        self.page[NEXT_DUE] = 0
        self.page.reset_flush_counters()
        return True

    def _is_alone(self) -> bool:
        try:
            return self.claim()
        finally:
            self.share()

    def validate_state(self, store: bytes) -> None:
        """Mark the shared state valid for this boot, store and lock file."""
        self.page.validate_state(store, self._lock_identity())

    def claim(self) -> bool:
        """Lock the store exclusively; return False if another process has it open."""
        return self._lock.try_lock()

    def share(self) -> None:
        """Change the exclusive lock back to a shared one."""
        self._lock.try_lock(shared=True)

    def leave(self) -> None:
        """Release the lock; the shared state stays readable."""
        self._lock.unlock()

    def close(self) -> None:
        """Release the lock and unmap the shared state."""
        self._lock.close()
        self.page.close()

    def _lock_identity(self) -> tuple[int, int]:
        return lock_identity(self._layout.lock) or (0, 0)


def _locked_error(layout: Layout) -> StoreLockedError:
    broker = BrokerFile(layout).read()
    if broker is None:
        return StoreLockedError(
            f"another process, such as a Java broker, has locked {layout.lock} exclusively.",
            remedy="Stop it, or open the store read-only, which works at any time.",
        )
    return StoreLockedError(
        f"{layout.root} is held by {broker}.",
        remedy="Write through the broker: give its address as `endpoint` instead of `path`."
        " Reading by `path` works at any time.",
    )


def make_folders(layout: Layout, mode: int | None) -> None:
    """Create the missing directories of a store.

    A directory that is not a store yet gets the permissions `mode`. Raises UnsupportedError on a
    network file system, and StoreDamagedError if a link, a device or a huge file has the name of a
    store file.
    """
    io.make_directory(layout.root)
    check_fixed_names(layout)
    if mode is not None and not layout.looks_like_a_store:
        io.set_mode(layout.root, mode)
    refuse_network_file_system(layout.root)
    for folder in (layout.own, layout.scratch, layout.commit_log, layout.consume_queues):
        io.make_directory(folder)


def last_holder(layout: Layout) -> int:
    """Return the id of the process that held the write lock last; 0 if there was none."""
    with suppress(FileNotFoundError), closing(SharedState(layout.state, writable=False)) as page:
        return page[HOLDER]
    return 0


def section_beside_broker(layout: Layout) -> Callable[[], AbstractContextManager[None]] | None:
    """Return a function that locks the store of a running broker for a `with` block.

    For a process that only reads. Returns None if no broker is running, or if this process may not
    take the lock.
    """
    if BrokerFile(layout).read() is None or not os.access(layout.mutex, os.W_OK):
        return None

    @contextmanager
    def hold() -> Iterator[None]:
        lock = WriteLock(layout.mutex, layout.turnstile, lambda: last_holder(layout))
        with closing(lock), lock.hold(_BESIDE_TIMEOUT_MS):
            yield

    return hold
