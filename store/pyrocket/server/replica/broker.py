"""`ReplicaBroker`: serves the store of a replica to clients that read."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyrocket.broker.broker import ConsumerLag, hello_of, log_bytes_of, running_state, version_of
from pyrocket.broker.source import StoreSource
from pyrocket.server.replica.link import PrimaryLink
from pyrocket.store import Store
from pyrocket.values.source import Hello, RunningState, Version


class ReplicaBroker:
    """Serves a store that is open for reading; the link is its only writer. Thread-safe."""

    damaged = dropped_traces = 0

    def __init__(self, store: Store, link: PrimaryLink, max_request_bytes: int) -> None:
        self.store, self.source, self.link = store, StoreSource(store), link
        self._max_request_bytes = max_request_bytes

    @property
    def path(self) -> Path:
        return self.store.path

    def hello(self) -> Hello:
        """Return the answer to a client's first call."""
        return hello_of(self.store, self._max_request_bytes)

    def running(self) -> RunningState:
        """Return the state of the replica."""
        state = running_state(self.store.path)
        role = self.link.role
        return replace(state, replicas=[self.link.state()], primary=role.primary, term=role.term)

    def version(self) -> Version:
        """Return the version of the store. Reads only memory."""
        return version_of(self.store)

    @property
    def trouble(self) -> str:
        """The reason why the replica is not ready; empty if it is, even without its primary."""
        ended = "" if self.link.is_running else "the thread that follows the primary has ended"
        return ", ".join(filter(None, (self.link.rounds.trouble, ended)))

    def failed_rounds(self) -> dict[str, int]:
        """Return how many rounds of the thread have failed."""
        return {"replication": self.link.rounds.failures}

    def lags(self) -> Iterator[ConsumerLag]:
        """Yield nothing: groups consume from the primary."""
        return iter(())

    def log_bytes(self) -> int:
        """Return the size of the log in bytes."""
        return log_bytes_of(self.store)
