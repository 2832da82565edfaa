"""The clocks. No other module reads the wall clock; all other modules are given a `Clock`."""

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
