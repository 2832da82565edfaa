"""Follows a primary over `pyrocket.v1`; see `broker.replicas` for what it sends."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pyrocket.base.config import StoreConfig
from pyrocket.base.rounds import Rounds
from pyrocket.base.versions import PROTOCOL, RELEASE
from pyrocket.broker.replicas import IDENTITY, decode_block
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import Follower, SmallFiles, make_replica
from pyrocket.errors import (
    PyrocketError,
    StoreFailedError,
    StoreReadOnlyError,
    TransportError,
    UnsupportedError,
)
from pyrocket.metadata.identity import load_identity
from pyrocket.metadata.role import RoleFile, check_terms
from pyrocket.remote.client import Client, Timeouts
from pyrocket.values.message import LogMark
from pyrocket.values.source import ReplicaState
from pyrocket.wire.messages import value_of

_FLUSH_BYTES = 32 << 20
"""While a replica catches up, it flushes and acknowledges this often."""

TIMEOUTS = Timeouts(connect=2, call=5, total=5, first=5)
"""Of calls to the primary: a replica that stops waits for the last one."""

_FIRST_PAUSE_S, _PAUSE_S = 0.1, 5.0
_FAILED = "following the primary failed"
_log = logging.getLogger(__name__)


class PrimaryLink:
    """Keeps a replica up to date, in a thread; connects again by itself."""

    def __init__(
        self, client: Client, layout: Layout, primary: str, name: str, opens: Callable[[], Follower]
    ) -> None:
        """The primary shows `name`; `opens` opens the store of the replica, which exists."""
        self._client, self._layout, self._name, self._opens = client, layout, name, opens
        self.role = replace(RoleFile(layout).read(), primary=primary)
        self.changed: Callable[[], None] = lambda: None
        self.rounds = Rounds()
        self._follower: Follower | None = None
        self._blocks: Iterator[bytes] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyrocket-replica", daemon=True)
        self._unflushed = self._acknowledged = self._published = self._durable = 0
        self._level_s = time.monotonic()

    def start(self) -> None:
        """Open the replica, or make it in an empty directory, and start to follow the primary.

        The store of an earlier primary becomes a replica of the promoted one. A replica whose
        primary cannot be reached is started, and serves what it has. Raises StoreReadOnlyError
        (NOT_A_REPLICA), and all other errors of the first connection.
        """
        layout = self._layout
        if layout.looks_like_a_store and not RoleFile(layout).read().primary:
            self._greet(demoted=load_identity(layout, StoreConfig()).store_id)
        if layout.identity.exists():
            RoleFile(layout).write(self.role)
            self._open()
        try:
            self._connect()
        except TransportError as error:
            if self._follower is None:
                raise
            _log.warning("the primary cannot be reached yet: %s", error)
        self._thread.start()

    def stop(self) -> None:
        """Stop following, and close the replica cleanly."""
        self._stopped.set()
        self._client.close()
        if self._thread.ident is not None:
            self._thread.join()
        if self._follower is not None:
            self._follower.close(clean=True)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def state(self) -> ReplicaState:
        """Return how far the replica is behind the end of the log that its primary last sent."""
        connected, end = self._blocks is not None, self._durable
        lag = max(self._published - end, 0)
        is_level = connected and not lag
        lag_ms = 0 if is_level else int(1000 * (time.monotonic() - self._level_s))
        return ReplicaState(self._name, connected, end, lag, lag_ms)

    def _open(self) -> None:
        """Open the replica, which recovers it after a failed write or fsync, or after a cut."""
        self._drop()
        self._follower = self._opens()
        self._durable = self._follower.durable_end

    def _drop(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close(clean=False)

    @property
    def _opened(self) -> Follower:
        assert self._follower is not None
        return self._follower

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            before = self._published
            try:
                self._follow()
            except TransportError as error:
                self.rounds.succeeded(_FAILED)
                _log.info("the primary cannot be reached: %s", error)
            except Exception as error:
                self._failed(error)
            self._disconnect()
            pause_s = _FIRST_PAUSE_S if self._published > before else min(2 * pause_s, _PAUSE_S)
            self._stopped.wait(pause_s)

    def _failed(self, error: Exception) -> None:
        if not self._stopped.is_set():
            self.rounds.record(_FAILED, error)
            if isinstance(error, StoreFailedError):
                self._drop()  # `_connect` opens it again.

    def _follow(self) -> None:
        if self._blocks is None:
            self._connect()
        for block in self._blocks or ():
            self._take(decode_block(block))
            if self._stopped.is_set():
                return

    def _disconnect(self) -> None:
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            blocks.close()  # type: ignore[attr-defined]

    def _connect(self) -> None:
        """Begin a stream, and use its first block. A tail that the primary lacks is cut off."""
        if self._follower is None and self._layout.identity.exists():
            self._open()
        self._greet()
        try:
            self._begin()
        except PyrocketError as error:
            self._disconnect()
            if error.code != "REPLICA_DIVERGED":
                raise
            self._opened.cut_what(self._lacks)
            self._open()
            self._begin()

    def _begin(self) -> None:
        follower, own = self._follower, dict[str, Any]()
        if follower is not None:
            follower.forget_rest()
            own = {"store": follower.identity.store_id, "end": follower.end}
            own["mark"] = follower.newest_mark()
        who = {"replica": self.role.replica, "name": self._name, "term": self.role.term}
        self._blocks = self._client.stream("Replicate", **who, **own)
        first = decode_block(next(self._blocks))
        identity = first.files.pop(IDENTITY)
        if follower is None:
            make_replica(self._layout, self.role, identity)
            self._open()
        self._opened.begin(first.published)
        self._acknowledged = 0
        self._take(first)
        self._acknowledge()

    def _greet(self, demoted: str | None = None) -> None:
        """Check the release and the term of the primary, and adopt the term.

        demoted: The id of a store of its own, which may become a replica only if it is an earlier
            primary: the same store in an older term.
        """
        hello = self._client.call("Hello", release=RELEASE, protocol=PROTOCOL)
        if _numbers(hello.release) > _numbers(RELEASE):
            raise UnsupportedError(
                f"The primary is pyrocket {hello.release}; this replica is {RELEASE}.",
                remedy="Update the replica before its primary.",
                code="PRIMARY_NEWER",
            )
        state = self._client.call("Status")
        own = demoted if self._follower is None else self._follower.identity.store_id
        is_ours = not state.primary and own in (None, hello.store)
        is_later = is_ours and state.term > self.role.term
        if demoted is not None and not is_later:
            raise StoreReadOnlyError(
                f"{self._layout.root} is a store of its own, not a replica.",
                remedy="Use an empty directory for a replica. The store of an earlier primary"
                " becomes a replica of the promoted one only.",
                code="NOT_A_REPLICA",
            )
        if is_ours:
            check_terms(state.term, self.role.term)
        if is_later:
            self.role = replace(self.role, term=state.term)
            if self._follower is not None:
                RoleFile(self._layout).change(term=state.term)

    def _take(self, block: Any) -> None:
        """Use one block."""
        follower = self._opened
        if data := block.data:  # Each access copies it.
            follower.receive(block.offset, data)
            self._unflushed += len(data)
        if block.files or block.gone or block.cursors or block.all_files:
            files, cursors = dict(block.files), dict(block.cursors)
            follower.put(SmallFiles(files, [*block.gone], cursors, block.all_files))
        follower.clean(block.log_start)
        self._published = block.published
        self.changed()
        if follower.end >= block.published or self._unflushed >= _FLUSH_BYTES:
            self._acknowledge()
            self.rounds.succeeded(_FAILED)

    def _acknowledge(self) -> None:
        """Make the log durable, and tell the primary if that has changed."""
        follower = self._opened
        follower.flush()
        self._unflushed = 0
        end = self._durable = follower.durable_end
        if end >= self._published:
            self._level_s = time.monotonic()
        if end != self._acknowledged:
            role = self.role
            self._client.call("Acknowledge", replica=role.replica, end=end, term=role.term)
            self._acknowledged = end

    def _lacks(self, mark: LogMark) -> bool:
        """Whether the primary does not have a record of the replica."""
        return value_of(self._client.call("Holds", mark=mark), bool | None) is False


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())
