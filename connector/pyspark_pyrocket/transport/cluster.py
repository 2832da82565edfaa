"""Several brokers, which name servers know, as a target.

Tasks and sinks do not use name servers: each of them gets the target of one broker.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyrocket import RouteLookup, StoreConfig, is_broker, live_brokers
from pyrocket.errors import StoreNotSharedError, TransportError

from pyspark_pyrocket.options.endpoint import PRIMARY, REPLICA, Endpoint, read_from_refused
from pyspark_pyrocket.transport.cluster_source import ClusterSource
from pyspark_pyrocket.transport.endpoint import (
    EndpointSink,
    EndpointSource,
    EndpointTarget,
    no_replica,
)
from pyspark_pyrocket.transport.interface import Capability

REFRESH_S = 30
"""Time after which the name servers are asked for new brokers, as in RocketMQ's clients."""

_PAUSE_S = 0.2

_kinds: dict[tuple[int, Endpoint], bool] = {}
"""Process and addresses → whether they are those of name servers."""

_directories: dict[tuple[int, Endpoint], "_Directory"] = {}


def server_target(endpoint: Endpoint, *, waits: bool = False) -> "EndpointTarget | ClusterTarget":
    """Return the target for the addresses of a broker or of name servers, which the first call
    distinguishes.

    With `waits`, wait for servers that have never been reached for as long as for those that
    restart. Raises TransportError, UnsupportedError, OptionError.
    """
    key = os.getpid(), endpoint
    if key not in _kinds:
        _kinds[key] = _are_name_servers(EndpointTarget(endpoint, waits=waits))
    if endpoint.read_from != PRIMARY and not _kinds[key]:
        raise read_from_refused(f"{endpoint.addresses[0]} is a broker")
    return (ClusterTarget if _kinds[key] else EndpointTarget)(endpoint, waits=waits)


def _are_name_servers(target: EndpointTarget) -> bool:
    if is_broker(target.open_source):
        return False
    target.close_source()
    live_brokers(target.endpoint.addresses, target.endpoint.credentials())
    return True


@dataclass(frozen=True)
class ClusterTarget:
    """The live brokers of name servers.

    Attributes:
        endpoint: The addresses of the name servers, and the settings of calls to them and to the
            brokers.
        waits: Whether this process waits for servers that it has never reached for as long as for
            those that restart.
    """

    endpoint: Endpoint
    waits: bool = False

    store_id = None
    broker = ""
    directory = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of all brokers."""
        sources = self.open_source().by_broker().values()
        return frozenset(Capability).intersection(
            *(source.target.capabilities for source in sources)
        )

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": ",".join(self.endpoint.addresses)}

    def describe(self) -> str:
        return f"the brokers of the name server at {','.join(self.endpoint.addresses)}"

    def of_store(self, store_id: str | None) -> "ClusterTarget":
        """Return this target: only that of a broker is limited to a store."""
        return self

    def of_broker(self, name: str, earlier: str = "") -> EndpointTarget:
        """Return the target of a broker, which is awaited: `name`, or `earlier`, or the first."""
        wanted = name or earlier or min(self._directory.current(self._patience))
        return self._directory.find(wanted, self.endpoint.timeout_ms / 1000)

    def waiting(self) -> "ClusterTarget":
        return replace(self, waits=True)

    def open_source(self) -> ClusterSource:
        """Return a source of the brokers that live now; connections are shared."""
        return self._opened(EndpointTarget.open_source)

    find_source = open_source
    """Brokers always have stores."""

    def close_source(self) -> None:
        directory = _directories.pop((os.getpid(), self.endpoint), None)
        if directory is not None:
            directory.close()

    def open_own_source(self) -> ClusterSource:
        return self._opened(EndpointTarget.open_own_source)

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> EndpointSink:
        """Return the sink of the first broker."""
        return self.of_broker("").open_sink(config=config, create=create, staging=staging)

    def not_shared(self, reason: str) -> StoreNotSharedError:
        return EndpointTarget(self.endpoint).not_shared(reason)

    @property
    def _directory(self) -> "_Directory":
        key = os.getpid(), self.endpoint
        if key not in _directories:
            _directories[key] = _Directory(self.endpoint)
        return _directories[key]

    @property
    def _patience(self) -> float:
        return self.endpoint.patience(waits=self.waits)

    def _opened(self, open_broker: Callable[[EndpointTarget], EndpointSource]) -> ClusterSource:
        directory, seconds = self._directory, self.endpoint.timeout_ms / 1000
        brokers = directory.current(self._patience)
        sources = {name: open_broker(target) for name, target in brokers.items()}
        return ClusterSource(self, sources, lambda name: open_broker(directory.find(name, seconds)))


class _Directory:
    """The brokers that the name servers of an endpoint know."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lookup = RouteLookup(endpoint.addresses, endpoint.credentials())
        self._known: dict[str, EndpointTarget] = {}
        self._asked_s = 0.0
        self._used: set[EndpointTarget] = set()

    def current(self, seconds: float) -> Mapping[str, EndpointTarget]:
        """Return the live brokers by name; wait until there is one.

        While no name server answers, the last known brokers are returned. Raises TransportError,
        also (REPLICA_UNAVAILABLE) if only replicas are read and a broker has none.
        """
        self._wait_for("", seconds)
        return self._known

    def find(self, name: str, seconds: float) -> EndpointTarget:
        """Return a broker, also one that has just started. Raises TransportError."""
        self._wait_for(name, seconds)
        return self._known[name]

    def close(self) -> None:
        """Close the connections to the brokers and the name servers."""
        for target in self._used:
            target.close_source()
        self._lookup.close()

    def _wait_for(self, name: str, seconds: float) -> None:
        is_old = time.monotonic() - self._asked_s > REFRESH_S
        if not is_old and self._missing(name) is None:
            return
        end = time.monotonic() + seconds
        while True:
            failure = self._refresh()
            if (missing := self._missing(name)) is None:
                return
            if time.monotonic() > end:
                raise failure or missing
            time.sleep(_PAUSE_S)

    def _missing(self, name: str) -> TransportError | None:
        """Return the error if a broker, by default any, or a replica that is needed is missing."""
        place = f"The name server at {','.join(self._endpoint.addresses)}"
        if not self._known or (name and name not in self._known):
            return TransportError(
                f"{place} knows no broker {name}".rstrip() + ".",
                remedy="Start the broker with this name server (--nameserver). If it has left"
                " the cluster for good, name it in the option removedBrokers.",
                repeat_is_safe=True,
            )
        alone = [broker for broker, target in self._known.items() if not target.replicas]
        if self._endpoint.read_from == REPLICA and alone:
            return no_replica(f"{place} knows no replica of {alone[0]}.")
        return None

    def _refresh(self) -> TransportError | None:
        try:
            brokers = self._lookup.all_brokers()
        except TransportError as error:
            return error
        finally:
            self._asked_s = time.monotonic()
        reads_replicas = self._endpoint.read_from != PRIMARY
        self._known = {
            name: EndpointTarget(
                replace(self._endpoint, addresses=(by_id[0],)),
                waits=True,
                broker=name,
                name_servers=self._endpoint.addresses,
                replicas=tuple(at for key, at in by_id.items() if key and reads_replicas),
            )
            for name, by_id in sorted(brokers.items())
            if 0 in by_id  # The primary, without which nothing can be planned.
        }
        self._used.update(self._known.values())
        return None
