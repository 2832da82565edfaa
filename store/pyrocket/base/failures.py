"""Errors that must end nothing: of periodic tasks, of calls, and of the application's code."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from pyrocket.base.rounds import Rounds

_T = TypeVar("_T")


@dataclass
class Failures:
    """Counts of errors that a client has survived. Safe to share between threads.

    Attributes:
        task_errors: Failures of periodic tasks and of calls to brokers, which are repeated.
        callback_errors: Exceptions of the application's functions other than the listener.
        rounds: Logs each kind of error once, until what failed has succeeded.
    """

    task_errors: int = 0
    callback_errors: int = 0
    warned: set[str] = field(default_factory=set, repr=False)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    rounds: Rounds = field(default_factory=Rounds, repr=False, compare=False)

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
        self.rounds.record(what, error)

    def call_back(self, what: str, function: Callable[..., _T], *arguments: Any) -> _T | None:
        """Call a function of the application; count and log its exception, and return None then."""
        try:
            result = function(*arguments)
        except Exception as error:  # The application's code may raise anything.
            with self.lock:
                self.callback_errors += 1
            self.rounds.record(f"{what} failed", error)
            return None
        self.rounds.succeeded(f"{what} failed")
        return result


async def attempt(failures: Failures, what: str, call: Awaitable[object]) -> bool:
    """Make a call, and return whether it succeeded; count and log an error and its effect."""
    try:
        await call
    except Exception as error:
        failures.task(what, error)
        return False
    failures.rounds.succeeded(what)
    return True
