"""The clocks, and pauses between repeats.

No other module reads the wall clock; all other modules are given a `Clock`.
"""

import random
import threading
import time
from collections.abc import Callable

FIRST_S, LAST_S = 0.1, 5.0
"""The first pause between repeats, and the longest: each is twice as long as the one before."""

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


class Pauses:
    """The pauses between the repeats of one call, which end at a deadline.

    Example:
        pauses = Pauses(30)
        while not call() and pauses.wait():
            pass
    """

    def __init__(self, seconds: float, *, first: float | None = None, last: float = LAST_S) -> None:
        """`seconds` until the deadline; the first pause, by default FIRST_S, and the longest."""
        self._end, self._last = time.monotonic() + seconds, last
        self._next = FIRST_S if first is None else first

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self._end - time.monotonic(), 0)

    def wait(self) -> bool:
        """Pause before a repeat; return False at once if the pause would exceed the deadline."""
        seconds = self._next * random.uniform(0.5, 1.5)
        if seconds > self.left:
            return False
        time.sleep(seconds)
        self._next = min(2 * self._next, self._last)
        return True
