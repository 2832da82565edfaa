"""The clocks. No other module reads the wall clock; all other modules are given a `Clock`."""

import threading
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the current time in epoch milliseconds, or in those of `steady_clock`."""

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def system_clock() -> int:
    """Return the wall-clock time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def steady_clock() -> int:
    """Return a time in milliseconds that never goes back, for ages that are kept only in memory.

    On Linux it includes the time for which the machine was suspended.
    """
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class SteadyTime:
    """A time of day that never goes back: `now_ms`, and the time that has passed since then.

    For times that outlive the process but are compared only with each other. `ages` counts the time
    that passes; where it goes back, as a test's clock may, no time passes.
    """

    def __init__(self, now_ms: int, ages: Clock = steady_clock) -> None:
        self._now, self._ages, self._last = now_ms, ages, ages()
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return the time in epoch milliseconds."""
        with self._lock:
            age = self._ages()
            self._now += max(age - self._last, 0)
            self._last = age
            return self._now
