"""Making the log durable: one fsync for everything that was published before it began.

`flushed` says how far the log is durable. Who wants more takes the flush lock; whoever held it
before may have done the work already (group commit). An fsync that fails may have dropped the
pages it was about, so it is never tried again: the store counts as failed until it is recovered.
"""

import threading
import time
from pathlib import Path

from pyrocket.disk.io import SyncError
from pyrocket.disk.lock import FileLock
from pyrocket.disk.state_page import FAILED, FLUSHED, PUBLISHED, StatePage
from pyrocket.errors import StoreFailedError, StoreLockedError
from pyrocket.log.commit_log import CommitLog

_POLL_SECONDS = 0.0002


class Flusher:
    """Flushes one log; threads and processes share each other's fsyncs."""

    def __init__(self, log: CommitLog, page: StatePage, lock: Path, timeout_ms: int) -> None:
        self._log, self._page, self._timeout_ms = log, page, timeout_ms
        self._lock = FileLock(lock)
        self._threads = threading.Lock()

    def flush(self) -> None:
        """Return when everything published before the call is durable."""
        target = self._page[PUBLISHED]
        with self._threads:
            while self._page[FLUSHED] < target:
                self._wait_for_turn()
                try:
                    self._sync()
                finally:
                    self._lock.unlock()

    def close(self) -> None:
        """Close the lock's file."""
        self._lock.close()

    def _wait_for_turn(self) -> None:
        """Take the flush lock."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        while not self._lock.try_lock():
            if time.monotonic() > deadline:
                raise StoreLockedError(
                    f"another process has been flushing for {self._timeout_ms} ms.",
                    remedy="The disk is very slow or stuck; lock_timeout_ms sets the wait.",
                    code="LOCK_TIMEOUT",
                )
            time.sleep(_POLL_SECONDS)

    def _sync(self) -> None:
        if self._page[FAILED]:
            raise failed_before()
        end = self._page[PUBLISHED]
        if self._page[FLUSHED] >= end:
            return
        try:
            self._log.run.sync(self._page[FLUSHED], end)
        except SyncError as error:
            self._page[FAILED] = 1
            raise StoreFailedError(
                f"fsync of the log failed: {error}.",
                remedy="Check the disk, close the store everywhere and open it again.",
            ) from error
        self._page[FLUSHED] = end


def failed_before() -> StoreFailedError:
    """Return the error for any write after a failed one."""
    return StoreFailedError(
        "a write or fsync of this store failed; what is durable is unknown.",
        remedy="Close it everywhere and open it again: that recovers it.",
    )
