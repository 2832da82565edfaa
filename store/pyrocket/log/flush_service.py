"""Flushing on its own clock: RocketMQ's asynchronous flush (`FlushRealTimeService`).

Every interval, if enough pages are dirty; whatever is dirty, after the thorough interval. The
thread sleeps as long as nothing is dirty, and ends with the store.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyrocket.config import StoreConfig
from pyrocket.disk.shared_state import FLUSHED, PUBLISHED, SharedState
from pyrocket.errors import StoreUnavailableError

PAGE_BYTES = 4096


@dataclass(frozen=True)
class FlushPolicy:
    """When an asynchronous flush is due; times in ms."""

    interval_ms: int
    least_pages: int
    thorough_ms: int

    @classmethod
    def of(cls, config: StoreConfig) -> "FlushPolicy":
        """Return what the configuration says."""
        return cls(
            config.flush_interval_ms, config.flush_least_pages, config.flush_thorough_interval_ms
        )

    def is_due(self, dirty_bytes: int, elapsed_ms: float) -> bool:
        """Whether to flush so many bytes, so long after the last flush or the first of them."""
        if dirty_bytes <= 0 or elapsed_ms < self.interval_ms:
            return False
        return elapsed_ms >= self.thorough_ms or dirty_bytes >= self.least_pages * PAGE_BYTES


class FlushService:
    """One thread of one open store; `flush` is called in it."""

    def __init__(self, policy: FlushPolicy, page: SharedState, flush: Callable[[], None]) -> None:
        self._policy, self._page, self._flush = policy, page, flush
        self._dirty, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        """Say that something was appended; the first call starts the thread."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stop.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="pyrocket-flush", daemon=True
                    )
                    self._thread.start()
        self._dirty.set()

    def close(self) -> None:
        """End the thread; what is dirty stays so. To be called before the page is closed."""
        self._stop.set()
        self._dirty.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._dirty.wait()
            self._dirty.clear()
            self._flush_until_clean()

    def _flush_until_clean(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(self._policy.interval_ms / 1000):
            dirty = self._page[PUBLISHED] - self._page[FLUSHED]
            if dirty <= 0:
                return
            if self._policy.is_due(dirty, (time.monotonic() - began) * 1000):
                if not self._tried():
                    return
                began = time.monotonic()

    def _tried(self) -> bool:
        """Flush. A failure is not lost: it is in the words, and the next append raises it."""
        try:
            self._flush()
        except StoreUnavailableError as error:
            return error.code == "FLUSH_DISK_TIMEOUT"
        return True
