"""Who does what is due, and when: delayed messages, timers, transaction checks.

An embedded store has no process of its own. What is due is done by whoever writes, after each of
its turns (`Hooks.after_section`), by a thread where one is wanted (`ServiceThread`), and by whoever
reads a stream (`advancing`). It is the same work in the same bounded parts, and it never keeps
anybody waiting: services try for a turn, and leave it where somebody writes.

The shared word `next_due` says when somebody has to look again, so that a look costs nothing until
then. Appends lower it; whoever has looked sets it, in a turn.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from pyrocket.disk.shared_state import NEVER, NEXT_DUE, STORE_TIME, SharedState
from pyrocket.engine.engine import Engine
from pyrocket.engine.hooks import Hooks
from pyrocket.engine.writer import Writer
from pyrocket.errors import PyrocketError, StoreReadOnlyError

RETRY_MS = 100
"""How long after a failure a service tries again: RocketMQ's DELAY_FOR_A_WHILE."""

POLL_MS = 20
"""How often a thread looks at the word: other processes append, too."""

TEND_SECONDS = 1.0
"""How often a thread indexes and cleans: its own turns do neither."""

_BUSY_MS = 2
_log = logging.getLogger(__name__)


class Service(Protocol):
    """Something that has work at certain times.

    What `deliver_due` does has to survive a kill anywhere: it moves its cursors with what it
    appends (`Writer.append(moves=…)`).
    """

    def deliver_due(self, writer: Writer, now_ms: int) -> int:
        """Do a part of what is due, a few MiB at most; return how much that was, 0 for nothing.

        Called without the write lock: it takes it by `writer.try_exclusive()`, whose
        StoreLockedError (LOCK_TIMEOUT) it need not catch.
        """
        ...

    def next_due(self, writer: Writer, now_ms: int) -> int:
        """Return when there is work again, in epoch ms; NEVER for none known. Called in a turn."""
        ...


class ServiceRunner:
    """Drives the services of one open store; safe to share between threads."""

    def __init__(self, engine: Engine, services: Sequence[Service]) -> None:
        """Make one; all processes that open the store have the same services."""
        self._engine, self._services, self._clock = engine, services, engine.clock
        self._pause_began: int | None = None
        self._told = ""
        self._refused = False
        self._running = threading.Lock()
        self._threads: list[ServiceThread] = []

    def hook_into(self, hooks: Hooks) -> None:
        """Have a part of what is due done after each turn of this process."""
        hooks.after_section.append(self._after_section)

    def run_due(self, writer: Writer) -> int:
        """Have a part of what is due done; return how much. Never raises, never waits."""
        now = self._clock()
        try:
            if not self._is_due(writer.page, now) or not self._running.acquire(blocking=False):
                return 0
            try:
                return self._run(writer, now)
            finally:
                self._running.release()
        except Exception as error:  # What it follows has succeeded, and must not fail for this.
            self._failed(error, now)
            return 0

    def drain(self, writer: Writer, most_seconds: float = 0.5) -> int:
        """Have all that is due done, for about so long at most; return how much was done."""
        until, total = time.monotonic() + most_seconds, 0
        while done := self.run_due(writer):
            total += done
            if time.monotonic() > until:
                break
        return total

    def start(self) -> "ServiceThread":
        """Start a thread that has things done on time; `stop` ends it, too."""
        self._threads = [each for each in self._threads if each.is_running]
        self._threads.append(ServiceThread(self, self._engine))
        return self._threads[-1]

    def stop(self) -> None:
        """End the threads: the store is about to be closed."""
        for thread in self._threads:
            thread.stop()

    def wait_ms(self, page: SharedState) -> int:
        """Return how long a thread may sleep, if nothing else is appended."""
        now = self._clock()
        if self._pauses(now):
            return POLL_MS
        return max(_BUSY_MS, min(page[NEXT_DUE] - now, POLL_MS))

    def _after_section(self) -> None:
        with suppress(StoreReadOnlyError):  # It is being closed.
            self.run_due(self._engine.writer)

    def _is_due(self, page: SharedState, now: int) -> bool:
        # Behind the store's time the clock has been set back, and the word says too much.
        return not self._pauses(now) and (page[NEXT_DUE] <= now or now < page[STORE_TIME])

    def _pauses(self, now: int) -> bool:
        began = self._pause_began
        return began is not None and began <= now < began + RETRY_MS

    def _run(self, writer: Writer, now: int) -> int:
        self._pause_began = now if now < writer.page[STORE_TIME] else None
        self._refused = False
        done = sum(self._deliver(each, writer, now) for each in self._services)
        if done and self._engine.config.flush != "manual":
            writer.flush_soon()
        if self._refused:
            # The word says that something is due, as it should. To take a turn for it could be
            # what keeps the others from delivering, and they us.
            return done
        try:
            with writer.try_exclusive():
                dues = [self._next_due(each, writer, now) for each in self._services]
                writer.page[NEXT_DUE] = min(dues, default=NEVER)
        except PyrocketError as error:
            self._failed(error, now)
        if self._pause_began is None:
            self._told = ""
        return done

    def _deliver(self, service: Service, writer: Writer, now: int) -> int:
        try:
            return service.deliver_due(writer, now)
        except (PyrocketError, OSError) as error:
            self._failed(error, now)
            return 0

    def _next_due(self, service: Service, writer: Writer, now: int) -> int:
        try:
            return service.next_due(writer, now)
        except (PyrocketError, OSError) as error:
            self._failed(error, now)
            return now + RETRY_MS

    def _failed(self, error: Exception, now: int) -> None:
        if getattr(error, "code", "") == "LOCK_TIMEOUT":
            self._refused = True  # Somebody writes: try again after that.
            return
        self._pause_began = now
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        """Log an error, not the same one again and again."""
        text = repr(error)
        if text != self._told:
            self._told = text
            _log.warning("what is due is tried again in %d ms: %s", RETRY_MS, error)


class ServiceThread:
    """A thread that has things done on time: late by milliseconds, never early.

    `stop` ends it, and so do the end of a `with` block and the store's close.
    """

    def __init__(self, runner: ServiceRunner, engine: Engine) -> None:
        """Start it; it ends when the engine is closed."""
        self._runner, self._engine = runner, engine
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyrocket-services", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; what is due waits for whoever writes next. Returns when it has ended."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def __enter__(self) -> "ServiceThread":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        pause, tended = 0, time.monotonic()
        while not self._stopped.wait(pause / 1000):
            try:
                writer = self._engine.writer
            except StoreReadOnlyError:
                return
            if time.monotonic() - tended >= TEND_SECONDS:
                writer.run_maintenance()
                tended = time.monotonic()
            pause = 0 if self._runner.run_due(writer) else self._runner.wait_ms(writer.page)
