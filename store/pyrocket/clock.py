"""The wall clock. No other module reads it; all other modules are given a `Clock`."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the current time in epoch milliseconds."""


def system_clock() -> int:
    """Return the wall-clock time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
