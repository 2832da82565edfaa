"""`ReplicaBroker`: serves the store of a replica to clients that read."""

from collections.abc import Iterator
from dataclasses import replace

from pyrocket.broker.broker import ConsumerLag, ServedStore, running_state
from pyrocket.server.replica.link import PrimaryLink
from pyrocket.store import Store
from pyrocket.values.source import RunningState


class ReplicaBroker(ServedStore):
    """Serves a store that is open for reading; the link is its only writer. Thread-safe."""

    damaged = dropped_traces = 0

    def __init__(self, store: Store, link: PrimaryLink, max_request_bytes: int) -> None:
        super().__init__(store, max_request_bytes)
        self.link = link

    def running(self) -> RunningState:
        """Return the state of the replica."""
        state = running_state(self.path)
        role = self.link.role
        return replace(state, replicas=[self.link.state()], primary=role.primary, term=role.term)

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
