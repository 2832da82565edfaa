"""Makes the log durable: one fsync covers everything published before it started.

The field `FLUSHED` is the durable end of the log. A caller that needs a later end takes the flush
lock; the previous holder may already have flushed that far (group commit, RocketMQ's
`GroupCommitService`). The holder is the leader of a group of callers. Before its fsync it waits for
more appends: as many as the last fsync covered, plus those that missed that fsync. Callers released
by an fsync usually append again soon, and the next fsync should cover all of them. The wait is
limited to half the duration of the last fsync. If the whole group needs longer than an fsync to
append, the leader waits for half of the group, and the others append during the fsync.

A failed fsync may have dropped the pages it should have written. It is therefore never retried: the
store is marked as failed until it is recovered.

A waiting caller sleeps until the fsync that covers it has ended. The leader of the next fsync is
woken first, so that the disk is not idle while many callers wake. If a leader dies, the others wake
by themselves after a few ms (`SharedEvent`).

Each store has one flush thread (`FlushService`). With asynchronous flushing it flushes at an
interval if enough pages are dirty, and after the thorough interval in any case (RocketMQ's
`FlushRealTimeService`). With synchronous flushing it runs the fsyncs of appends, so that an append
can return after its timeout while an fsync hangs. The thread sleeps while nothing is dirty, and
ends when the store is closed.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyrocket.base.rounds import Rounds
from pyrocket.disk.io import SyncError
from pyrocket.disk.lock import EventLock
from pyrocket.disk.shared_state import (
    APPEND_NS,
    APPENDS,
    FAILED,
    FLUSHED,
    FLUSHED_APPENDS,
    GROUP,
    PUBLISHED,
    STORE_TIME,
    SYNC_NS,
    SYNCING,
    WANTED,
    SharedState,
)
from pyrocket.errors import StoreFailedError, StoreLockedError
from pyrocket.log.commit_log import CommitLog

_log = logging.getLogger(__name__)

_SHORTEST_POLL, _LONGEST_POLL = 0.0002, 0.002
_KINDS, _GATHERING = 31, 1 << 31
"""Bits of the flush lock's event: one for each of 31 fsyncs in rotation, and one for a leader.

A caller waits for the bit of its fsync; a leader waits for its group with `_GATHERING`. SYNCING
describes the last fsync that was started, by the log end that it covers and its number (0 to 30),
as end * 31 + number: one field, so that both are read together.
"""

_GATHER_POLL_SECONDS = 0.0001
_LONGEST_GATHER_NS = 50_000_000

AfterSync = Callable[[int, int, Mapping[int, int]], None]
"""Called with the durable end of the log, a store time (ms), and the services' cursors.

All messages stored before that time are below that end, and so are all deliveries that the cursors
include.
"""


class Flusher:
    """Flushes one log. Threads and processes share fsyncs."""

    def __init__(
        self, log: CommitLog, page: SharedState, lock: Path, timeout_ms: int, after_sync: AfterSync
    ) -> None:
        self._log, self._page, self._after_sync = log, page, after_sync
        self.timeout_ms = timeout_ms
        self._lock = EventLock(lock)
        self._led, self._leading = threading.Condition(), False
        self._failure: StoreFailedError | None = None

    def flush(self) -> None:
        """Make everything durable that was published before the call.

        Raises StoreLockedError (FLUSH_DISK_TIMEOUT) if fsyncs of other callers take longer than
        `self.timeout_ms`, StoreFailedError if an fsync failed, and OSError if no fsync was started.
        """
        target, wait_ms = self._page[PUBLISHED], self.timeout_ms
        deadline = time.monotonic() + wait_ms / 1000
        while self._become_leader(target, deadline, wait_ms):
            try:
                self._lead(target, deadline, wait_ms)
            finally:
                with self._led:
                    self._leading = False
                    self._led.notify_all()

    def await_flush(self, target: int, timeout_ms: int) -> None:
        """Wait until the log is durable up to `target` by an fsync of another thread.

        Raises StoreLockedError (FLUSH_DISK_TIMEOUT), and StoreFailedError if an fsync failed.
        """
        page = self._page
        with self._led:
            self._led.wait_for(lambda: page[FLUSHED] >= target or page[FAILED], timeout_ms / 1000)
        if page[FLUSHED] >= target:
            return
        if page[FAILED]:
            raise self._failure or failed_before()
        raise _late(timeout_ms)

    def wake_waiting(self) -> None:
        """Let the callers of `await_flush` look again: another process may have flushed."""
        with self._led:
            self._led.notify_all()

    def notify_appended(self) -> None:
        """Wake the leader if enough appends for its group are published."""
        if 0 < self._page[WANTED] <= self._page[APPENDS]:
            self._lock.event.notify(1, _GATHERING)

    def close(self) -> None:
        self._lock.close()

    def _become_leader(self, target: int, deadline: float, wait_ms: int) -> bool:
        """Become the thread of this process that flushes; False if no flush is needed anymore."""
        with self._led:
            while self._page[FLUSHED] < target:
                if not self._leading:
                    self._leading = True
                    return True
                if not self._led.wait(deadline - time.monotonic()):
                    raise _late(wait_ms)
        return False

    def _lead(self, target: int, deadline: float, wait_ms: int) -> None:
        if self._take_lock(target, deadline, wait_ms):
            try:
                self._sync()
            finally:
                number = self._page[SYNCING] % _KINDS
                self._lock.hand_over(_kind(number + 1), _kind(number))

    def _take_lock(self, target: int, deadline: float, wait_ms: int) -> bool:
        """Take the flush lock; False if no flush is needed anymore."""
        while self._page[FLUSHED] < target:
            seen = self._lock.event.sequence()
            if self._lock.try_lock():
                return True
            if time.monotonic() > deadline:
                raise _late(wait_ms)
            self._lock.event.wait(seen, self._pause(), self._waits_for(target))
        return False

    def _waits_for(self, target: int) -> int:
        """Return the event bit of the fsync to wait for: the last one started or its successor."""
        end, number = divmod(self._page[SYNCING], _KINDS)
        return _kind(number + (target > end))

    def _pause(self) -> float:
        """Return the time to wait before polling again: an eighth of an fsync, in seconds."""
        return min(max(self._page[SYNC_NS] / 8e9, _SHORTEST_POLL), _LONGEST_POLL)

    def _sync(self) -> None:
        page = self._page
        if page[FAILED]:
            raise failed_before()
        if page[FLUSHED] >= page[PUBLISHED]:
            return
        self._gather()
        # Read in this order: an append sets its store time, publishes, and then sets the cursors.
        # A delivery that these cursors do not include is not older than `stored`. Recovery starts
        # reading before it and finds it (`skip_delivered`).
        stored = page[STORE_TIME]
        cursors = page.cursors()
        appends, end = page[APPENDS], page[PUBLISHED]
        page[SYNCING] = end * _KINDS + (page[SYNCING] + 1) % _KINDS
        began = time.monotonic_ns()
        try:
            self._log.run.sync(page[FLUSHED], end)
        except SyncError as error:
            self._failure = fsync_failed(error)
            page[FAILED] = 1
            _log.error("%s", self._failure)
            raise self._failure from error
        page[FLUSHED] = end
        page[SYNC_NS] = time.monotonic_ns() - began
        page[GROUP] = page[APPENDS] - page[FLUSHED_APPENDS]
        page[FLUSHED_APPENDS] = appends
        self._after_sync(end, stored, cursors)

    def _gather(self) -> None:
        """Wait for the number of appends in the last group, or half of it if they are slow."""
        page = self._page
        group = page[GROUP]
        if group * page[APPEND_NS] > page[SYNC_NS]:
            group = (group + 1) // 2
        deadline = time.monotonic_ns() + min(page[SYNC_NS] // 2, _LONGEST_GATHER_NS)
        page[WANTED], event = page[FLUSHED_APPENDS] + group, self._lock.event
        seen = event.sequence()
        while page[APPENDS] < page[WANTED]:
            left = deadline - time.monotonic_ns()
            if left <= 0:
                break
            event.wait(seen, _GATHER_POLL_SECONDS, _GATHERING, left)
            seen = event.sequence()
        page[WANTED] = 0


def _kind(number: int) -> int:
    return 1 << number % _KINDS


def _late(wait_ms: int) -> StoreLockedError:
    return StoreLockedError(
        f"the log was not flushed within {wait_ms} ms. The messages are stored,"
        " but it is not known yet whether they are durable.",
        remedy="The disk is very slow or stuck. flush_timeout_ms sets the wait.",
        code="FLUSH_DISK_TIMEOUT",
    )


def fsync_failed(error: OSError, what: str = "the log") -> StoreFailedError:
    """Return the error for the caller whose fsync failed."""
    return StoreFailedError(
        f"fsync of {what} failed: {error}.",
        remedy="Check the disk, close the store everywhere and open it again.",
    )


def failed_before() -> StoreFailedError:
    """Return the error for every write after a failed write or fsync."""
    return StoreFailedError(
        "a write or fsync of this store failed; how much is durable is unknown.",
        remedy="Close it everywhere and open it again, which recovers it.",
    )


@contextmanager
def failing_on_sync_error(page: SharedState) -> Iterator[None]:
    """Mark the store as failed if an fsync of the indexes fails. This stops all writers."""
    try:
        yield
    except SyncError as error:
        page[FAILED] = 1
        failure = fsync_failed(error, "the indexes")
        _log.error("%s", failure)
        raise failure from error


PAGE_BYTES = 4096


@dataclass(frozen=True)
class FlushPolicy:
    """When an asynchronous flush is due; times in ms."""

    interval_ms: int
    least_pages: int
    thorough_ms: int

    def is_due(self, dirty_bytes: int, elapsed_ms: float) -> bool:
        """Whether to flush dirty bytes, this time after the last flush or the first dirty byte."""
        if dirty_bytes <= 0 or elapsed_ms < self.interval_ms:
            return False
        return elapsed_ms >= self.thorough_ms or dirty_bytes >= self.least_pages * PAGE_BYTES


RETRY_S = 1.0
"""Pause of the flush thread after an error."""

_FAILED = "flushing the log failed"


class FlushService:
    """A thread of one open store that flushes. An error before an fsync is retried."""

    def __init__(self, policy: FlushPolicy, page: SharedState, flusher: Flusher) -> None:
        self._policy, self._page, self._flusher = policy, page, flusher
        self.rounds = Rounds()
        self._dirty, self._asked, self._stop = (threading.Event() for _ in range(3))
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive, or has not been started yet."""
        return self._thread is None or self._thread.is_alive()

    def wake(self) -> None:
        """Start or wake the thread; called after an append."""
        if self._starts():
            self._dirty.set()

    def flush(self, timeout_ms: int) -> None:
        """Make everything durable that was published before the call, by an fsync of the thread.

        Raises StoreLockedError (FLUSH_DISK_TIMEOUT) if that takes longer than `timeout_ms`, and
        StoreFailedError if an fsync failed.
        """
        target = self._page[PUBLISHED]
        if self._page[FLUSHED] >= target:
            return
        if not self._starts():
            self._flusher.flush()
            return
        self._asked.set()
        self._dirty.set()
        self._flusher.await_flush(target, timeout_ms)

    def close(self) -> None:
        """Stop the thread without flushing. Call this before the shared state is closed."""
        for event in (self._stop, self._asked, self._dirty):
            event.set()
        if self._thread is not None:
            self._thread.join()

    def _starts(self) -> bool:
        """Start the thread if necessary; return False if the process can start no more threads."""
        if self._thread is not None:
            return True
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._run, name="pyrocket-flush", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self.rounds.record(_FAILED, error)
                else:
                    self._thread = thread
        return self._thread is not None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._dirty.wait()
            self._dirty.clear()
            self._flush_until_clean()

    def _flush_until_clean(self) -> None:
        began = time.monotonic()
        while True:
            is_asked = self._asked.wait(self._policy.interval_ms / 1000)
            self._asked.clear()
            dirty = self._page[PUBLISHED] - self._page[FLUSHED]
            if self._stop.is_set() or not (is_asked or dirty > 0):
                return
            if is_asked or self._policy.is_due(dirty, (time.monotonic() - began) * 1000):
                if not self.rounds.run(_FAILED, self._flush):
                    self._stop.wait(RETRY_S)
                    self._asked.set()
                elif self._page[FAILED]:
                    return
                began = time.monotonic()

    def _flush(self) -> None:
        """Flush. A failed fsync is recorded in the shared state, and the next append raises it."""
        try:
            with suppress(StoreFailedError):
                self._flusher.flush()
        finally:
            self._flusher.wake_waiting()
