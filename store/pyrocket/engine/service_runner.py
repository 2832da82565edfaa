"""Runs the services when they are due: delayed messages, timers, transaction checks.

An embedded store has no process of its own. Services are run by each writer after releasing the
write lock (`Hooks.after_section`), by a thread if one is started (`ServiceThread`), and by
streaming readers (`ReaderDelivery`). All run the same services in bounded steps, and never delay
other writers: a service does not wait for the write lock, and stops if another process holds the
lock.

The shared field `next_due` is the time of the next check, so that earlier checks are cheap. Appends
lower it; the runner sets it after a check, under the write lock.

A stream that reads from a store without a writer would never see delayed messages. Therefore
`ReaderDelivery` briefly opens the store for writing when the shared state shows that a message is
due; never if no message was ever delayed, or if only a broker has written to the store.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from pyrocket.base.rounds import Rounds
from pyrocket.disk.shared_state import NEVER, NEXT_DUE, STORE_TIME, SharedState
from pyrocket.engine.engine import Engine
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.writer import Writer
from pyrocket.errors import PyrocketError, StoreLockedError, StoreReadOnlyError
from pyrocket.formats.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC

_log = logging.getLogger(__name__)


RETRY_MS = 100
"""Delay before a service retries after a failure: RocketMQ's DELAY_FOR_A_WHILE."""

POLL_MS = 20
"""The interval at which a thread checks `next_due`: other processes append, too."""

TEND_SECONDS = 1.0
"""The interval at which a thread indexes and cleans; deliveries do neither."""

ALONE_POLL_MS = 200
"""The interval at which a thread checks `next_due` if other processes cannot append. Appends of
this process wake the thread, so the interval only bounds the delay after the clock was set.
"""

_BUSY_MS = 2
_FAILED = f"a due service failed and is retried in {RETRY_MS} ms"


class Service(Protocol):
    """A service that delivers messages when they are due.

    The process may be killed at any point of `deliver_due`, so a service must move its cursors
    atomically with its appends (`Writer.append(moves=…)`).
    """

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Process due items, a few MiB at most; return their number.

        Called without the write lock. Must acquire the lock with `writer.try_exclusive()`, and need
        not catch the StoreLockedError (LOCK_TIMEOUT) of this method.
        """

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return the next due time in epoch ms, or NEVER. Called with the write lock held."""


class ServiceRunner:
    """Runs the services of one open store; safe to share between threads."""

    def __init__(self, engine: Engine, services: Sequence[Service]) -> None:
        """All processes that open the store must pass the same services."""
        self._engine, self._services, self._clock = engine, services, engine.clock
        self._pause_began: int | None = None
        self.rounds = Rounds()
        self._refused = False
        self.tend_seconds = TEND_SECONDS
        self._running = threading.Lock()
        self._threads: list[ServiceThread] = []

    def hook_into(self, hooks: Hooks) -> None:
        """Run due services after each exclusive section of this process."""
        hooks.after_section.append(self._after_section)

    def run_due(self, writer: Writer) -> int:
        """Process a part of the due items; return their number. Never raises, never waits."""
        now = self._clock()
        try:
            if not self._is_due(writer.page, now) or not self._running.acquire(blocking=False):
                return 0
            try:
                return self._run(writer, now)
            finally:
                self._running.release()
        except Exception as error:  # The append has already succeeded, and must not fail.
            self._failed(error, now)
            return 0

    def drain(self, writer: Writer, max_seconds: float = 0.5) -> int:
        """Process due items for at most about `max_seconds`; return their number."""
        until, total = time.monotonic() + max_seconds, 0
        while done := self.run_due(writer):
            total += done
            if time.monotonic() > until:
                break
        return total

    def start(self) -> "ServiceThread":
        """Start a thread that runs due services; `stop` also ends the thread."""
        self._threads = [thread for thread in self._threads if thread.is_running]
        self._threads.append(ServiceThread(self, self._engine))
        return self._threads[-1]

    def stop(self) -> None:
        """Stop all threads, before the store is closed."""
        for thread in self._threads:
            thread.stop()

    def wait_ms(self, page: SharedState) -> int:
        """Return the time in ms that a thread may sleep until its next check."""
        now = self._clock()
        if self._pauses(now):
            return POLL_MS
        poll_ms = ALONE_POLL_MS if self._engine.config.exclusive else POLL_MS
        return max(_BUSY_MS, min(page[NEXT_DUE] - now, poll_ms))

    def _after_section(self) -> None:
        with suppress(StoreReadOnlyError):  # The store is being closed.
            writer = self._engine.writer
            self.run_due(writer)
            for thread in self._threads:
                thread.wake_before(writer.page[NEXT_DUE])

    def _is_due(self, page: SharedState, now: int) -> bool:
        # If the clock is before the store time, the clock was set back, and `next_due` may be too
        # late.
        return not self._pauses(now) and (page[NEXT_DUE] <= now or now < page[STORE_TIME])

    def _pauses(self, now: int) -> bool:
        began = self._pause_began
        return began is not None and began <= now < began + RETRY_MS

    def _run(self, writer: Writer, now: int) -> int:
        self._pause_began = now if now < writer.page[STORE_TIME] else None
        self._refused = False
        done = sum(self._deliver(service, writer, now) for service in self._services)
        if done and self._engine.config.flush != "manual":
            writer.flush_soon()
        if self._refused:
            # `next_due` must stay in the past. If this process took the lock here, it could prevent
            # deliveries of other processes, and vice versa.
            return done
        try:
            with writer.try_exclusive():
                dues = [self._next_due(service, writer, now) for service in self._services]
                writer.page[NEXT_DUE] = min(dues, default=NEVER)
        except PyrocketError as error:
            self._failed(error, now)
        if self._pause_began is None:
            self.rounds.succeeded(_FAILED)
        return done

    def _deliver(self, service: Service, writer: Writer, now: int) -> int:
        try:
            return service.deliver_due(writer, now)
        except Exception as error:  # The other services must go on.
            self._failed(error, now)
            return 0

    def _next_due(self, service: Service, writer: Writer, now: int) -> int:
        try:
            return service.next_due(writer, now)
        except Exception as error:
            self._failed(error, now)
            return now + RETRY_MS

    def _failed(self, error: Exception, now: int) -> None:
        if getattr(error, "code", "") == "LOCK_TIMEOUT":
            self._refused = True  # Another process writes: retry afterwards.
            return
        self._pause_began = now
        self.rounds.record(_FAILED, error)


class ServiceThread:
    """A thread that runs services when they are due: milliseconds late, never early.

    It ends with `stop`, with the end of a `with` block, or when the store is closed.
    """

    def __init__(self, runner: ServiceRunner, engine: Engine) -> None:
        """Start the thread; it ends when the engine is closed."""
        self._runner, self._engine, self.rounds = runner, engine, runner.rounds
        self._woken, self._stopped = threading.Event(), False
        self._wakes_at = NEVER
        self._thread = threading.Thread(target=self._run, name="pyrocket-services", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait until it has ended; the next writer runs the due services."""
        self._stopped = True
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def wake_before(self, due_ms: int) -> None:
        """Wake the thread if it would sleep past this time (epoch ms). Any thread may call this."""
        if due_ms < self._wakes_at:
            self._woken.set()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def __enter__(self) -> "ServiceThread":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        tended = time.monotonic()
        while True:
            self._woken.clear()
            if self._stopped:
                return
            self._wakes_at = NEVER  # Until the pause is known, every due time wakes the thread.
            try:
                writer = self._engine.writer
            except StoreReadOnlyError:
                return
            if time.monotonic() - tended >= self._runner.tend_seconds:
                self.rounds.run("indexing or cleaning failed", writer.run_maintenance)
                tended = time.monotonic()
            if not self.rounds.run("the services failed", partial(self._run_due, writer)):
                self._woken.wait(RETRY_MS / 1000)

    def _run_due(self, writer: Writer) -> None:
        if not self._runner.run_due(writer):
            pause_ms = self._runner.wait_ms(writer.page)
            self._wakes_at = self._engine.clock() + pause_ms
            self._woken.wait(pause_ms / 1000)


class ReaderDelivery:
    """Delivers due messages for the readers of one store. Not thread-safe.

    `interval_seconds` is the minimum time between two openings of the store for writing.
    """

    interval_seconds, after_failure_seconds = 1.0, 10.0

    def __init__(self, engine: Engine) -> None:
        self._layout, self._reader, self._clock = engine.layout, engine.reader, engine.clock
        self._not_before = 0.0

    def deliver_due(self, open_writable: Callable[[], Any]) -> bool:
        """Deliver due messages, at most once a second; return whether any were due.

        `open_writable` opens the `Store` for writing. While no message is due, this only reads the
        shared state. Never raises: if a broker has the store open, or the directory is not
        writable, nothing is delivered.
        """
        if time.monotonic() < self._not_before or not self._is_due():
            return False
        self._not_before = time.monotonic() + self.interval_seconds
        try:
            return _deliver_once(open_writable())
        except (PyrocketError, OSError) as error:
            if getattr(error, "code", "") != "LOCK_TIMEOUT":  # A writer is active and delivers.
                _log.info("due messages in %s wait for a writer: %s", self._layout.root, error)
                self._not_before = time.monotonic() + self.after_failure_seconds
            return False

    def _is_due(self) -> bool:
        try:
            due = self._reader.next_due()
            if due is None and not self._reader.identity.store_id:
                return False  # Only brokers have written here.
        except (PyrocketError, OSError):
            return False  # The next read raises the error.
        # Without a valid shared state the due time is unknown: check whether a message was ever
        # delayed.
        folders = map(self._layout.topic_queues, (SCHEDULE_TOPIC, TIMER_TOPIC))
        return (due or 0) <= self._clock() and any(folder.exists() for folder in folders)


def _deliver_once(store: Any) -> bool:
    try:
        done: bool = store.deliver_due()
        if done:
            with suppress(StoreLockedError):  # Another process is flushing.
                store.flush()
        return done
    finally:
        store.close(clean=False)
