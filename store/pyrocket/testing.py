"""For tests of what uses a store: a clock that all its processes obey.

    clock = FileClock(path)
    clock.set(1_700_000_000_000)        # from now on every store opened at `path` …
    with Store.open(path, create=True) as store: ...
    clock.advance(72 * 3_600_000)       # … in any process, Spark's workers too, takes this time

Nothing else ever makes such a clock, and a store that finds one says so in the log.
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
    """The clock of the store at `path`, which need not exist yet; itself a `Clock`.

    It stands still until it is moved. Stores obey it if they are opened after the first `set`,
    and not given another clock. One process at a time may move it.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._layout = Layout(Path(path).absolute())

    def __call__(self) -> int:
        """Return the time in epoch milliseconds. Raises FileNotFoundError before it is set."""
        return ClockFile(self._layout.clock)()

    def set(self, now_ms: int) -> None:
        """Set the time; made if there is none. Store times don't follow it backwards."""
        if not 0 <= now_ms < 1 << 63:
            raise InvalidInputError(
                f"{now_ms} is no time.", remedy="Use epoch milliseconds from 0 on."
            )
        if self._layout.clock.exists():
            ClockFile(self._layout.clock, writable=True).set(now_ms)
            return
        content = now_ms.to_bytes(CLOCK_BYTES, sys.byteorder)
        replace_file(self._layout.clock, content, self._layout.scratch)

    def advance(self, ms: int) -> int:
        """Move on by so many milliseconds; return the time then."""
        self.set(self() + ms)
        return self()

    def remove(self) -> None:
        """Let stores opened from now on take the wall clock; those open keep the time they have."""
        io.unlink(self._layout.clock)
