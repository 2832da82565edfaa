"""Pauses between repeats of what failed: each is twice as long as the one before."""

import random
import time

FIRST_S, LAST_S = 0.1, 5.0


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
