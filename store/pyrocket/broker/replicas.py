"""The replicas of a broker: what each is sent, and how far its log is durable.

A block is a checksum, CRC-32 in 4 bytes, and a message `ReplicaBlock`: bytes of the log at their
offset, or small files that hold from the end of all bytes sent before. The files are read together
with the end of the log from which they hold, and sent when the log has been sent up to there.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyrocket.broker.confirmations import Confirmations
from pyrocket.disk.io import read_or_none
from pyrocket.disk.layout import Layout
from pyrocket.engine.parts.follower import SmallFiles, small_paths
from pyrocket.errors import DataLossError, InvalidInputError, StoreFailedError, StoreLockedError
from pyrocket.formats.checksum import crc32
from pyrocket.metadata.json_table import file_stamp
from pyrocket.metadata.role import RoleFile, check_terms
from pyrocket.store import Store, reader_of, writer_of
from pyrocket.values.message import LogMark
from pyrocket.values.source import ReplicaState

IDENTITY = "pyrocket/store.json"
_BLOCK_BYTES = 4 << 20
_LOOK_S = 1.0
"""How often small files are compared; after changes of topics and files they are at once."""

_MAX_BEHIND = 256 << 20
"""RocketMQ's haSlaveFallbehindMax: a replica that lacks more bytes is not waited for."""

_CRC_BYTES = 4


def encode_block(**fields: object) -> bytes:
    """Return a block with these fields of a `ReplicaBlock`."""
    from pyrocket.wire.descriptors import message_class
    from pyrocket.wire.messages import fill

    data: bytes = fill(message_class("pyrocket.v1.ReplicaBlock")(), fields).SerializeToString()
    return crc32(data).to_bytes(_CRC_BYTES, "big") + data


def decode_block(block: bytes) -> Any:
    """Return a block as a `ReplicaBlock`. Raises InvalidInputError (REPLICA_BLOCK)."""
    from google.protobuf.message import DecodeError

    from pyrocket.wire.descriptors import message_class

    data = memoryview(block)[_CRC_BYTES:]
    with suppress(DecodeError):
        if block[:_CRC_BYTES] == crc32(data).to_bytes(_CRC_BYTES, "big"):
            return message_class("pyrocket.v1.ReplicaBlock").FromString(data)
    raise InvalidInputError(
        "a block from the primary was damaged on its way.",
        remedy="Nothing of it was used; the replica connects again by itself.",
        code="REPLICA_BLOCK",
    )


@dataclass
class _Replica:
    """A replica that has connected, the end of its durable log, and whether it is connected."""

    id: str
    name: str
    end: int = 0
    connected: bool = False


class Replicas:
    """The replicas that have connected to one broker. Safe to share between threads."""

    def __init__(self, store: Store, sync_timeout_s: float = 0) -> None:
        self._store, self._reader = store, reader_of(store)
        self.term = RoleFile(Layout(store.path)).read().term
        self._lock, self._known = threading.Lock(), dict[str, _Replica]()
        self.confirmations = Confirmations(self._published, self._is_any_near, sync_timeout_s)
        self.changed: Callable[[], None] = lambda: None
        """Called when a replica has acknowledged something."""

    def connect(
        self, store: str, replica: str, name: str, term: int, end: int, mark: LogMark | None
    ) -> "ReplicaFeed":
        """Return what to send to a replica, whose log ends at `end` and has the mark.

        `store` is empty for a replica without a store, `mark` missing for an empty log. Raises
        InvalidInputError (REQUEST_MALFORMED, REPLICA_OTHER_STORE, REPLICA_NAME_IN_USE,
        PRIMARY_FENCED), and DataLossError (REPLICA_BEHIND, REPLICA_DIVERGED).
        """
        if not (replica and name):
            raise InvalidInputError(
                "a replica has to give its id and its name.",
                remedy="Use a release of pyrocket that this broker supports.",
                code="REQUEST_MALFORMED",
            )
        if store not in ("", self._store.uuid):
            raise InvalidInputError(
                f"the replica has the store {store}, but the primary has {self._store.uuid}.",
                remedy="Use the address of the replica's primary, or an empty directory.",
                code="REPLICA_OTHER_STORE",
            )
        check_terms(self.term, term)
        if mark is not None:
            self._check_place(end, mark)
        with self._lock:
            known = self._known.get(name) or _Replica(replica, name)
            if known.id != replica and known.connected:
                raise InvalidInputError(
                    f"another replica is connected as {name}.",
                    remedy="Was the directory copied? Make the second replica in an empty one.",
                    code="REPLICA_NAME_IN_USE",
                )
            state = _Replica(replica, name, known.end if known.id == replica else 0, True)
            self._known[name] = state
        return ReplicaFeed(self._store, state, None if mark is None else end)

    def _check_place(self, end: int, mark: LogMark) -> None:
        log_start, log_end = self._reader.log.first_offset(), self._published()
        if end < log_start:
            raise _behind(
                f"the replica ends at {end}, but the log of its primary begins at {log_start}"
            )
        if end > log_end or self._store.history.holds(mark) is False:
            raise DataLossError(
                f"the replica ends at {end} with messages that its primary does not have.",
                remedy="The replica saves them and cuts them off.",
                code="REPLICA_DIVERGED",
            )

    def acknowledge(self, replica: str, end: int, term: int) -> None:
        """Record up to which log offset the log of a replica is durable.

        Raises InvalidInputError (PRIMARY_FENCED) for another term than that of the store.
        """
        check_terms(self.term, term)
        end = min(end, self._published())  # Nothing is confirmed before it is appended.
        with self._lock:
            states = [state for state in self._known.values() if state.id == replica]
            for state in states:
                state.end = end
        if states and term == self.term:
            self.confirmations.acknowledged(end)
        self.changed()

    def _published(self) -> int:
        return self._store.position().published

    def _is_any_near(self) -> bool:
        """Whether a connected replica lacks little enough to be waited for."""
        least = self._published() - _MAX_BEHIND
        with self._lock:
            return any(known.connected and known.end >= least for known in self._known.values())

    def version(self) -> tuple[object, ...]:
        """Return a value that changes when there may be something to send to a replica."""
        with self._lock:
            return self._store.position(), *(state.end for state in self._known.values())

    def states(self) -> list[ReplicaState]:
        """Return the state of each replica that has connected since the broker was started."""
        with self._lock:
            known = [*self._known.values()]
        return [
            ReplicaState(state.name, state.connected, state.end, *self._lag(state.end))
            for state in known
        ]

    def _lag(self, end: int) -> tuple[int, int]:
        """Return what a replica lacks: bytes, and the age in ms of the oldest message."""
        log, lag = self._reader.log, self._store.position().published - end
        if lag <= 0:
            return 0, 0
        try:
            end = max(end, log.first_offset())
            stored = log.stored_at(end) or log.stored_at(log.file_end(end))
        except FileNotFoundError:
            stored = 0
        return lag, max(self._store.now() - stored, 0) if stored else 0


class ReplicaFeed:
    """What one replica is sent. Its methods may be called by any thread, one at a time."""

    def __init__(self, store: Store, replica: _Replica, end: int | None) -> None:
        """`end` is that of the replica's log; None for a log without records."""
        self._store, self._replica = store, replica
        self._layout, self._log = Layout(store.path), reader_of(store).log
        self._at = self._log.first_offset() if end is None else end
        self._level_at = 0
        """The end of the last block with which the replica has everything."""

        self._seen: tuple[object, ...] = ()
        self._stamps: Mapping[str, object] = {}
        self._structure, self._next_look = -1, 0.0
        own = {IDENTITY: self._layout.identity, "pyrocket/epochs.json": self._layout.epochs}
        contents = {name: read_or_none(path) for name, path in own.items()}
        known = {name: data for name, data in contents.items() if data is not None}
        self._held: SmallFiles | None = SmallFiles(known)
        self._held_at = self._at

    def close(self) -> None:
        """Record that the replica is no longer connected."""
        self._replica.connected = False

    def next(self) -> bytes | None:
        """Return the next block; None if there is nothing to send now.

        While the replica makes a block durable with which it has everything, less than a block is
        not sent: what is appended meanwhile needs only one fsync and one acknowledgement.
        """
        published = self._store.position().published
        if self._held is None:
            self._look()
        limit = published if self._held is None else self._held_at
        if self._at < limit:
            if self._replica.end < self._level_at and limit - self._at < _BLOCK_BYTES:
                return None
            return self._log_block(min(limit, self._log.file_end(self._at)), published)
        if self._held is None:
            return None
        small, self._held = self._held, None
        return encode_block(
            offset=self._at,
            published=published,
            log_start=self._log.first_offset(),
            files=small.files,
            gone=small.gone,
            cursors=small.cursors,
            all_files=small.is_all,
        )

    def _log_block(self, limit: int, published: int) -> bytes:
        start = self._at
        try:
            data = self._log.read(start, min(_BLOCK_BYTES, limit - start))
        except FileNotFoundError:
            data = b""
        if not data:
            raise _behind(f"the log at {start} was deleted before the replica had received it")
        self._at += len(data)
        if self._at == published:
            self._level_at = published
        return encode_block(offset=start, data=data, published=published)

    def _look(self) -> None:
        """Read the small files that have changed, together with the end of the log."""
        structure, now = self._store.position().structure, time.monotonic()
        if structure == self._structure and now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        paths, before = small_paths(self._layout), self._stamps
        stamps = {name: file_stamp(path) for name, path in paths.items()}
        # Read before the end of the log: everything that they cover has been appended.
        cursors, first = reader_of(self._store).cursors(), self._log.first_offset()
        changed = [name for name in stamps if stamps[name] != before.get(name)]
        gone = [name for name in before if name not in stamps]
        if (seen := (stamps, cursors, first)) != self._seen:
            try:
                with writer_of(self._store).exclusive(even_if_full=True):
                    self._held_at = self._store.position().published
                    contents = {name: read_or_none(paths[name]) for name in changed}
            except (StoreLockedError, StoreFailedError):
                return  # The next look tries again; the log is sent even if it cannot be written.
            files = {name: data for name, data in contents.items() if data is not None}
            self._held = SmallFiles(files, gone, cursors, is_all=not self._seen)
        self._seen, self._stamps, self._structure = seen, stamps, structure


def _behind(reason: str) -> DataLossError:
    return DataLossError(
        f"{reason}: the replica lacks files that were deleted.",
        remedy="Make the replica again in an empty directory, or keep messages longer.",
        code="REPLICA_BEHIND",
    )
