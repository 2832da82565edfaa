"""Checks the shared state and the checkpoint, and detects changes during a check."""

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from pyrocket.disk.io import SMALL_FILE_BYTES, read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import (
    DISPATCHED,
    INDEXED,
    PUBLISHED,
    STRUCTURE,
    SharedState,
    lock_identity,
)
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.checkpoint import CHECKPOINT_BYTES, decode_checkpoint
from pyrocket.metadata.identity import Identity
from pyrocket.metadata.json_table import file_stamp
from pyrocket.tools.verify.report import Findings, Severity, repair

_OPEN_IT = (
    "Nothing while the store is in use; otherwise the next writer or `pyrocket repair` recovers it."
)
_RECOVER = repair("recovers the store from its files, as does the next writer.")
_WRITE = repair("writes it again.")
_T = TypeVar("_T")


class Observed:
    """A store at the start of a check. `state` is its shared state, or None if invalid.

    clean: no writer has the store open, and the last one closed it cleanly.
    """

    def __init__(self, layout: Layout, identity: Identity) -> None:
        self._layout, self._identity = layout, identity
        self.state = valid_state(layout, identity)
        self.clean = not layout.abort.exists()
        self._before = self._now()

    @property
    def at_rest(self) -> bool:
        """Whether, according to its files, no process is changing the store."""
        return self.state is None or self.clean

    def has_changed(self) -> bool:
        """Whether a writer has opened or recovered the store since the start of the check.

        For a store at rest, also detects a writer that opened it, appended and closed it again.
        """
        if self.state is None and valid_state(self._layout, self._identity) is not None:
            return True
        return self._now() != self._before

    def _now(self) -> tuple[object, ...]:
        structure = self.state[STRUCTURE] if self.state else 0
        if not self.clean:
            return (structure,)
        published = self.state[PUBLISHED] if self.state else 0
        checkpoint = file_stamp(self._layout.checkpoint)
        return structure, published, self._layout.abort.exists(), checkpoint


def valid_state(layout: Layout, identity: Identity) -> SharedState | None:
    """Map the shared state if it was written in this boot, for this store, and is not corrupt."""
    lock, state = lock_identity(layout.lock), _map_state(layout)
    if state is None:
        return None
    if identity.store_id and lock and state.is_valid(identity.key, lock) and state.is_sound():
        return state
    state.close()
    return None


def _map_state(layout: Layout) -> SharedState | None:
    try:
        return SharedState(layout.state, writable=False)
    except (FileNotFoundError, ValueError, StoreDamagedError):
        return None


def _ask(layout: Layout, question: Callable[[SharedState], _T], default: _T) -> _T:
    """Return `question(state)`, also for an invalid state; `default` if there is no state."""
    state = _map_state(layout)
    if state is None:
        return default
    with closing(state):
        return question(state)


def check_state(layout: Layout, findings: Findings) -> None:
    """Report an unclean shutdown, an interrupted recovery, or changes since the last shutdown."""
    if layout.abort.exists():
        what = "the store is in use, or was not closed cleanly."
        findings.add("NOT_CLOSED", Severity.NOTE, "abort", what, _OPEN_IT)
    if _ask(layout, SharedState.is_recovering, False):
        what = "a recovery or repair is in progress, or was interrupted; readers wait."
        findings.add("NOT_RECOVERED", Severity.NOTE, "pyrocket/state", what, _OPEN_IT)
    if not _ask(layout, SharedState.is_sound, True):
        what = "it has changed since the last clean shutdown."
        findings.add("STATE_DAMAGED", Severity.ERROR, "pyrocket/state", what, _RECOVER)


def index_lag_severity(layout: Layout, identity: Identity) -> Severity | None:
    """Return the severity of a key index that ends before the log in a cleanly closed store.

    WARNING: the index should be complete, because a broker or a writer with an index used the store
        last. The shared state records this, also in a copy of the store.
    NOTE: the last writer had no index, or appended nothing.
    None: the store is a snapshot, whose index is incomplete by design.
    """
    if not identity.store_id:
        return Severity.WARNING if any(layout.index.glob("*")) else None

    def severity(state: SharedState) -> Severity | None:
        return Severity.WARNING if state[INDEXED] >= state[DISPATCHED] > 0 else Severity.NOTE

    return _ask(layout, severity, None)


def read_checkpoint(layout: Layout) -> bytes | None:
    """Return the checkpoint's bytes. Read it before the log, so that it cannot be newer."""
    path = layout.checkpoint
    return None if path.is_dir() else read_or_none(path, SMALL_FILE_BYTES)


def check_checkpoint(
    data: bytes | None, last_stored: int, findings: Findings, *, clean: bool
) -> None:
    """Compare the checkpoint with `last_stored`, the store time (epoch ms) of the last message."""
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
    declared = max(vars(known).values())
    if declared > last_stored:
        what = f"it declares messages up to {declared} ms durable, but the log's last"
        what += f" message is from {last_stored} ms: a recovery may read too little of the log."
        findings.add("CHECKPOINT_AHEAD", Severity.WARNING, "checkpoint", what, _WRITE)
    elif clean and known.safe_timestamp == 0 < last_stored:
        what = "it is empty: a recovery would read the whole log."
        findings.add("CHECKPOINT_BEHIND", Severity.NOTE, "checkpoint", what, _WRITE)
