"""The checkpoint, and how the store was left."""

from collections.abc import Callable

from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import SharedState
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
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
