"""Whether somebody has changed a store while it was looked at: what was seen may be no damage."""

from pathlib import Path

from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import lock_identity
from pyrocket.disk.shared_state import PUBLISHED, STRUCTURE, SharedState
from pyrocket.errors import StoreDamagedError
from pyrocket.metadata.identity import Identity


class Before:
    """A store as it was when the look at it began; `page` are its words, if they are true."""

    def __init__(self, layout: Layout, identity: Identity) -> None:
        self._layout, self._identity = layout, identity
        self.page = true_words(layout, identity)
        self.clean = not layout.abort.exists()
        self._state = self._now()

    def has_changed(self) -> bool:
        """Whether somebody has come in or recovered since, or files have come or gone.

        At rest, somebody may even have come, written and gone.
        """
        if self.page is None and true_words(self._layout, self._identity) is not None:
            return True
        return self._now() != self._state

    def _now(self) -> tuple[object, ...]:
        structure = self.page[STRUCTURE] if self.page else 0
        if not self.clean:
            return (structure,)
        written = self.page[PUBLISHED] if self.page else 0
        return structure, written, self._layout.abort.exists(), _stamp(self._layout.checkpoint)


def true_words(layout: Layout, identity: Identity) -> SharedState | None:
    """Return the shared words, if true: written in this boot, for this store, by us, and sound."""
    lock = lock_identity(layout.lock)
    if not identity.store_id or lock is None:
        return None
    try:
        page = SharedState(layout.state, writable=False)
    except (FileNotFoundError, ValueError, StoreDamagedError):
        return None
    if page.is_valid(identity.key, lock) and page.is_sound():
        return page
    page.close()
    return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino
