"""A clock for tests of programs that use a store, shared by all processes of the store.

    clock = FileClock(path)
    clock.set(1_700_000_000_000)        # from now on every store opened at `path` …
    with Store.open(path, create=True) as store: ...
    clock.advance(72 * 3_600_000)       # … in any process, Spark's workers too, uses this time

Only `FileClock` creates such a clock; opening a store that has one logs a warning.
"""

import sys
from os import PathLike
from pathlib import Path

from pyrocket.disk import io
from pyrocket.disk.clock_file import CLOCK_BYTES, ClockFile
from pyrocket.disk.io import replace_file
from pyrocket.disk.layout import Layout
from pyrocket.errors import InvalidInputError


class FileClock:
    """The clock of the store at `path`, which need not exist yet. Implements `Clock`.

    The time changes only by `set` and `advance`. Stores that are opened after the first `set` use
    it, unless they are given another clock. Only one process at a time may set it.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._layout = Layout(Path(path).absolute())

    def __call__(self) -> int:
        """Return the time in epoch milliseconds. Raises FileNotFoundError before it is set."""
        return ClockFile(self._layout.clock)()

    def set(self, now_ms: int) -> None:
        """Set the time (epoch ms), creating the clock if missing. Store times never decrease."""
        if not 0 <= now_ms < 1 << 63:
            raise InvalidInputError(
                f"{now_ms} is not a time.", remedy="Use epoch milliseconds, 0 or more."
            )
        if self._layout.clock.exists():
            ClockFile(self._layout.clock, writable=True).set(now_ms)
            return
        content = now_ms.to_bytes(CLOCK_BYTES, sys.byteorder)
        replace_file(self._layout.clock, content, self._layout.scratch)

    def advance(self, ms: int) -> int:
        """Advance the time by `ms` milliseconds; return the new time."""
        self.set(self() + ms)
        return self()

    def remove(self) -> None:
        """Delete the clock. Stores opened later use the wall clock; open stores keep their time."""
        io.unlink(self._layout.clock)
