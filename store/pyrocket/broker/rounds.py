"""Runs the periodic work of a thread. Errors are logged, and the next round retries the work."""

import logging
from collections.abc import Callable

from pyrocket.errors import PyrocketError

_log = logging.getLogger(__name__)


class Rounds:
    """Runs the work of one thread."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}

    def run(self, failed: str, work: Callable[[], object]) -> None:
        """Do the work. Log an error, preceded by `failed`, unless the last error was the same.

        An unexpected error is logged with its traceback.
        """
        try:
            work()
        except Exception as error:
            self._log(failed, error)
        else:
            self._failures.pop(failed, None)

    def _log(self, failed: str, error: Exception) -> None:
        if self._failures.get(failed) == repr(error):
            return
        self._failures[failed] = repr(error)
        if isinstance(error, (PyrocketError, OSError)):
            _log.warning("%s: %s", failed, error)
        else:
            _log.error("%s", failed, exc_info=error)
