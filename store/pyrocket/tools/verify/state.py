"""The checkpoint, and how the store was left."""

from collections.abc import Callable
from pathlib import Path

from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import lock_identity
from pyrocket.disk.shared_state import PUBLISHED, STRUCTURE, SharedState
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from pyrocket.metadata.identity import Identity
from pyrocket.tools.verify.finding import Findings, Severity, repair

_OPEN_IT = (
    "Nothing, while it is in use; else the next writer recovers it, and so does `pyrocket repair`."
)
_RECOVER = repair("recovers the store from its files, and so does the next writer.")
_WRITE = repair("writes it anew.")


def read_checkpoint(layout: Layout) -> bytes | None:
    """Return the checkpoint as it is; before the log is looked at, so that it cannot be newer."""
    return (
        read_or_none(layout.checkpoint, SMALL_FILE_BYTES)
        if not layout.checkpoint.is_dir()
        else None
    )


def check_checkpoint(
    data: bytes | None, last_stored: int, findings: Findings, *, clean: bool
) -> None:
    """Compare the checkpoint with the store time of the log's last message."""
    if data is None:
        if clean and last_stored:
            what = "it is missing: a recovery would read the whole log."
            findings.add("CHECKPOINT_MISSING", Severity.WARNING, "checkpoint", what, _WRITE)
        return
    if len(data) != CHECKPOINT_BYTES:
        what = f"it has {len(data)} bytes, not {CHECKPOINT_BYTES}."
        findings.add("CHECKPOINT_LENGTH", Severity.WARNING, "checkpoint", what, _WRITE)
        return
    known = decode_checkpoint(data)
    if _latest(known) > last_stored:
        what = f"it says that messages up to {_latest(known)} ms are durable, but the log's last"
        what += f" is of {last_stored} ms: a recovery may skip what it should look at."
        findings.add("CHECKPOINT_AHEAD", Severity.WARNING, "checkpoint", what, _WRITE)
    elif clean and known.safe_timestamp == 0 < last_stored:
        what = "it says nothing: a recovery would read the whole log."
        findings.add("CHECKPOINT_BEHIND", Severity.NOTE, "checkpoint", what, _WRITE)


def _latest(checkpoint: Checkpoint) -> int:
    return max(checkpoint.log_timestamp, checkpoint.queue_timestamp, checkpoint.index_timestamp)


def check_left(layout: Layout, findings: Findings) -> None:
    """Say whether the store was closed cleanly."""
    if layout.abort.exists():
        what = "the store is in use, or was not closed cleanly."
        findings.add("NOT_CLOSED", Severity.NOTE, "abort", what, _OPEN_IT)
    if _asks(layout, SharedState.is_recovering, missing=False):
        what = "a recovery or repair is going on, or has not come to its end; readers wait."
        findings.add("NOT_RECOVERED", Severity.NOTE, "pyrocket/state", what, _OPEN_IT)
    if not _asks(layout, SharedState.is_sound, missing=True):
        what = "it is not as the last clean end left it."
        findings.add("STATE_DAMAGED", Severity.ERROR, "pyrocket/state", what, _RECOVER)


def _asks(layout: Layout, question: Callable[[SharedState], bool], *, missing: bool) -> bool:
    """Return the answer of the shared words."""
    try:
        page = SharedState(layout.state, writable=False)
    except (FileNotFoundError, ValueError, StoreDamagedError):
        return missing
    try:
        return question(page)
    finally:
        page.close()


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
