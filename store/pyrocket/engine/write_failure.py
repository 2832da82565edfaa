"""The last failed write of a store, for the health of a broker."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from pyrocket.base.clock import Clock
from pyrocket.disk import io
from pyrocket.disk.os_errors import WRITE_FAILED, translating_os_errors
from pyrocket.errors import PyrocketError, StoreUnavailableError

RETRY_MS = 10_000
"""The interval at which a write is tried again: a broker that is not healthy gets no appends."""

_CODES = ("WRITE_FAILED", "QUEUES_NOT_WRITTEN")


class WriteFailure:
    """The error of the last write. Safe to share between threads."""

    def __init__(self, scratch: Path, clock: Clock) -> None:
        """`scratch` is the store's folder of incomplete files."""
        self._scratch, self._clock, self._tried_ms = scratch, clock, 0
        self.text = ""

    @contextmanager
    def noting(self, root: Path) -> Iterator[None]:
        """Translate OSErrors of the `with` block, and keep the error of a failed write."""
        try:
            with translating_os_errors(root, "try again", what=WRITE_FAILED):
                yield
        except StoreUnavailableError as error:
            if error.code in _CODES:
                self.text, self._tried_ms = str(error), self._clock()
            raise

    def end(self) -> None:
        """Forget the error after a write that succeeded."""
        self.text = ""

    def retry_if_due(
        self, section: Callable[[], AbstractContextManager[None]], write: Callable[[], None]
    ) -> None:
        """Try to `write` and to create a file in a section, RETRY_MS after a failure."""
        since_ms = self._clock() - self._tried_ms
        if not self.text or 0 <= since_ms < RETRY_MS:
            return
        with suppress(PyrocketError), section():  # `noting` keeps a new error.
            write()
            io.install_file(self._scratch / "written", self._scratch, [(0, b"0")])
            io.unlink(self._scratch / "written")
            self.end()
