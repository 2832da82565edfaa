"""Runs the periodic work of a thread. Errors are logged and counted; the next round tries again.

Every thread that must live as long as its store, broker or connection uses this guard;
store/DESIGN.md lists the threads.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from pyrocket.errors import PyrocketError

_log = logging.getLogger(__name__)


class Rounds:
    """Runs the work of one thread. `failures` counts the rounds that failed."""

    def __init__(self, level: int = logging.WARNING) -> None:
        """`level` is that of expected errors; an unexpected one is always logged as an error."""
        self.failures, self._level = 0, level
        self._failing: dict[str, dict[object, Exception]] = {}

    @property
    def trouble(self) -> str:
        """What fails at present, with the first error of each kind; empty if nothing does."""
        failing = [*self._failing.items()]
        return ", ".join(f"{what}: {error}" for what, kinds in failing for error in kinds.values())

    def run(self, failed: str, work: Callable[[], object]) -> bool:
        """Do the work, and return whether it succeeded; see `record`."""
        try:
            work()
        except Exception as error:
            self.record(failed, error)
            return False
        self.succeeded(failed)
        return True

    def record(self, failed: str, error: Exception) -> None:
        """Count a failure; log it, preceded by `failed`, once a kind until the work succeeds.

        The kind is the class with the error's code or number. An unexpected error is logged with
        its traceback.
        """
        self.failures += 1
        kinds = self._failing.setdefault(failed, {})
        kind = type(error), getattr(error, "code", None), getattr(error, "errno", None)
        if kind in kinds:
            return
        kinds[kind] = error
        if isinstance(error, (PyrocketError, OSError)):
            _log.log(self._level, "%s: %s", failed, error)
        else:
            _log.error("%s", failed, exc_info=error)

    def succeeded(self, failed: str) -> None:
        """End the failure of this work."""
        self._failing.pop(failed, None)


class GuardedThread(Protocol):
    """A thread that runs its work with `rounds`."""

    @property
    def rounds(self) -> Rounds:
        """The guard of its work."""

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive, or has not been started yet."""
