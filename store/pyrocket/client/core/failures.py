"""Errors that must end nothing: of periodic tasks, of calls, and of the application's code."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from pyrocket.errors import PyrocketError, TransportError

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass
class Failures:
    """Counts of errors that a client has survived. Safe to share between threads.

    Attributes:
        task_errors: Failures of periodic tasks and of calls to brokers, which are repeated.
        callback_errors: Exceptions of the application's functions other than the listener.
    """

    task_errors: int = 0
    callback_errors: int = 0
    warned: set[str] = field(default_factory=set, repr=False)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def is_first(self, kind: str) -> bool:
        """Whether this is the first call with a kind of error."""
        with self.lock:
            is_first = kind not in self.warned
            self.warned.add(kind)
        return is_first

    def task(self, what: str, error: Exception) -> None:
        """Count and log the error of a task; `what` is its effect."""
        with self.lock:
            self.task_errors += 1
        self._log(what, error)

    def call_back(self, what: str, function: Callable[..., _T], *arguments: Any) -> _T | None:
        """Call a function of the application; count and log its exception, and return None then."""
        try:
            return function(*arguments)
        except Exception as error:  # The application's code may raise anything.
            with self.lock:
                self.callback_errors += 1
            self._log(f"{what} failed", error)
            return None

    def _log(self, what: str, error: Exception) -> None:
        """Log an error: the first unexpected one of each kind with its traceback."""
        if isinstance(error, PyrocketError):
            _log.warning("%s: %s", what, error)
            return
        is_first = self.is_first(f"{what}: {type(error).__name__}")
        _log.error("%s: %r", what, error, exc_info=error if is_first else None)


async def attempt(failures: Failures, what: str, call: Awaitable[object]) -> bool:
    """Make a call, and return whether it succeeded; count and log an error and its effect."""
    try:
        await call
    except Exception as error:
        failures.task(what, error)
        return False
    return True


class Tasks:
    """The tasks of one client, until they are cancelled. Used by one event loop."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def repeat(
        self,
        what: str,
        work: Callable[[], Awaitable[object]],
        *,
        every_s: float,
        wake: asyncio.Event | None = None,
    ) -> None:
        """Do work every `every_s` seconds, and with `wake` also when this event is set.

        what: The effect of an error, which is logged and counted.
        """

        async def run() -> None:
            woken = asyncio.Event() if wake is None else wake
            while True:
                # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
                timer = asyncio.get_running_loop().call_later(every_s, woken.set)
                try:
                    await woken.wait()
                finally:
                    timer.cancel()
                woken.clear()
                await attempt(self._failures, what, work())

        self.start(run())

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in [*self._tasks]:
            task.cancel()


class SideBySide:
    """Work at several brokers: a broker that does not answer delays only its own work.

    Used by one event loop.
    """

    def __init__(self, tasks: Tasks, late: Callable[[], None] = lambda: None) -> None:
        """`late` is called when work has ended for which `run` did not wait."""
        self._tasks, self._late = tasks, late
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(
        self,
        brokers: set[str],
        work: Callable[[str], Coroutine[Any, Any, None]],
        *,
        patience_s: float,
    ) -> None:
        """Do work for each broker, and wait for `patience_s` at most.

        A broker at which earlier work is not finished is omitted. `work` handles its errors.
        """
        started = [self._start(broker, work) for broker in sorted(brokers - self._running.keys())]
        if started:
            _, late = await asyncio.wait(started, timeout=patience_s)
            for task in late:
                task.add_done_callback(lambda done: self._late())

    async def one_ended(self) -> bool:
        """Wait until work at one broker has ended; return False if there is none."""
        running = [*self._running.values()]
        if running:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return bool(running)

    def _start(
        self, broker: str, work: Callable[[str], Coroutine[Any, Any, None]]
    ) -> "asyncio.Task[None]":
        self._running[broker] = task = self._tasks.start(work(broker))
        task.add_done_callback(lambda done: self._running.pop(broker))
        return task


async def within(seconds: float, call: Coroutine[Any, Any, _T]) -> _T:
    """Make a call, and raise TransportError if it takes longer."""
    task = asyncio.ensure_future(call)
    try:
        # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise TransportError(
        f"there was no answer within {seconds:g} s.",
        remedy="Check that the broker runs; the call is repeated.",
        repeat_is_safe=True,
    )
