"""A cluster of Apache RocketMQ, which name servers know, as a target and a source.

Only the brokers of the topics that a query reads are called: name servers may know several
clusters. Routes, connections and what sources remember stay open, for each process.
"""

import os
import re
import socket
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NoReturn

from pyrocket import (
    QueueRange,
    RocketMQCluster,
    RocketMQSink,
    RocketMQSource,
    StoreConfig,
    is_system_topic,
)
from pyrocket.errors import StoreNotSharedError, UnsupportedError

from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport.cluster_source import ClusterSource
from pyspark_pyrocket.transport.interface import Capability

_clusters: dict[tuple[int, Endpoint], RocketMQCluster] = {}
"""Process and name servers → the connections to the cluster."""

_open: dict[tuple[int, "NamesrvBrokerTarget"], "NamesrvBrokerSource"] = {}
"""Process and broker → its source, with what it remembers."""


def cluster_of(endpoint: Endpoint) -> RocketMQCluster:
    """Return the cluster that this process keeps open."""
    key = os.getpid(), endpoint
    if key not in _clusters:
        _clusters[key] = _connect(endpoint)
    return _clusters[key]


def _connect(endpoint: Endpoint) -> RocketMQCluster:
    return RocketMQCluster(
        endpoint.name_servers,
        endpoint.credentials(),
        broker_addresses=dict(endpoint.broker_addresses),
    )


@dataclass(frozen=True)
class _Named:
    """What the targets of a cluster and of one of its brokers have in common.

    Attributes:
        endpoint: The name servers, and the settings of calls.
        topics: The topics that are planned or written; a task names the queues that it reads.
        broker: The name of the only broker; empty for all.
        store_id: The id of the only cluster that is opened; None for any.
        waits: Whether servers that this process has never reached are awaited for as long as those
            that restart.
        group: The group in whose name messages are pulled; empty for one that all brokers have.
    """

    endpoint: Endpoint
    _: KW_ONLY
    topics: tuple[str, ...] = ()
    broker: str = ""
    store_id: str | None = None
    waits: bool = False
    group: str = ""

    capabilities = frozenset({Capability.GROUPS, Capability.LOOKUP})
    directory = None

    @property
    def options(self) -> dict[str, str]:
        return {"namesrv": ";".join(self.endpoint.name_servers)}

    def close_source(self) -> None:
        """Close the connections of this process to the cluster."""
        pid = os.getpid()
        for key in [key for key in _open if key[0] == pid and key[1].endpoint == self.endpoint]:
            del _open[key]
        cluster = _clusters.pop((pid, self.endpoint), None)
        if cluster is not None:
            cluster.close()

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "NamesrvSink":
        """Return a sink that sends to all brokers, or to that of the target."""
        seconds = self.endpoint.patience(waits=self.waits)
        cluster = cluster_of(self.endpoint)
        sink = NamesrvSink(cluster, self.topics, broker=self.broker, seconds=seconds)
        self.check_store(lambda: sink.store_id)
        return sink

    def check_store(self, found: Callable[[], str]) -> None:
        """Raise StoreNotSharedError if the target is limited to another cluster."""
        if self.store_id is not None and found() != self.store_id:
            raise self.not_shared(f"it belongs to {found()}, not to {self.store_id}")

    def not_shared(self, reason: str) -> StoreNotSharedError:
        return StoreNotSharedError(
            f"A task on {socket.gethostname()} uses the name servers at"
            f" {';'.join(self.endpoint.name_servers)} like the driver, but {reason}.",
            remedy="The addresses have to lead to the same cluster on all machines.",
        )


@dataclass(frozen=True)
class NamesrvTarget(_Named):
    """The topics of a query in a cluster.

    Attributes:
        topics: The topics that the query names.
        pattern: The regular expression for the names of others; empty for none.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""

    def describe(self) -> str:
        return f"the cluster of RocketMQ at {';'.join(self.endpoint.name_servers)}"

    def of_store(self, store_id: str | None) -> "NamesrvTarget":
        """Return this target: only that of a broker is limited to a store."""
        return self

    def of_broker(self, name: str, earlier: str = "") -> "NamesrvBrokerTarget":
        wanted = name or earlier or min(self.open_source().by_broker(), default="")
        return NamesrvBrokerTarget(self.endpoint, wanted, group=self.group)

    def waiting(self) -> "NamesrvTarget":
        return replace(self, waits=True)

    def open_source(self) -> "NamesrvSource":
        """Return a source of the brokers that have the topics now."""
        return self._opened(cluster_of(self.endpoint), NamesrvBrokerTarget.source_in)

    def find_source(self) -> "NamesrvSource":
        """Return `open_source()`: brokers always have stores."""
        return self.open_source()

    def open_own_source(self) -> "NamesrvSource":
        """Return a source whose connections are shared with those of this process."""
        return self._opened(cluster_of(self.endpoint), NamesrvBrokerTarget.new_source_in)

    def _opened(
        self,
        cluster: RocketMQCluster,
        opened: "Callable[[NamesrvBrokerTarget, RocketMQCluster], NamesrvBrokerSource]",
    ) -> "NamesrvSource":
        topics, patience = self.topics, self.endpoint.patience(waits=self.waits)
        if self.pattern:
            names = cluster.topic_names(patience)
            topics = tuple(
                name
                for name in names
                if re.fullmatch(self.pattern, name) and not is_system_topic(name, "", names)
            )
        routes = cluster.routes(topics, patience)

        def source_of(name: str) -> NamesrvBrokerSource:
            target = NamesrvBrokerTarget(self.endpoint, name, topics=topics, group=self.group)
            return opened(target, cluster)

        def found(name: str) -> NamesrvBrokerSource:
            cluster.broker(name, self.endpoint.timeout_ms / 1000)
            return source_of(name)

        brokers = {name for route in routes.values() for name in route.queues}
        if not brokers:  # A query that waits for its topics needs one.
            brokers = {cluster.first_broker(patience)}
        return NamesrvSource(self, {name: source_of(name) for name in brokers}, found)


@dataclass(frozen=True)
class NamesrvBrokerTarget(_Named):
    """One broker of a cluster, from which tasks read, or all brokers, to which they write."""

    broker: str = ""

    def describe(self) -> str:
        servers = ";".join(self.endpoint.name_servers)
        broker = f"the broker {self.broker} of " if self.broker else ""
        return f"{broker}the cluster of RocketMQ at {servers}"

    def of_store(self, store_id: str | None) -> "NamesrvBrokerTarget":
        return replace(self, store_id=store_id)

    def of_broker(self, name: str, earlier: str = "") -> "NamesrvBrokerTarget":
        return replace(self, broker=name) if name else self

    def waiting(self) -> "NamesrvBrokerTarget":
        """Return the target of a sink that waits; a source always does."""
        return replace(self, waits=True)

    def open_source(self) -> "NamesrvBrokerSource":
        return self.source_in(cluster_of(self.endpoint))

    def open_reader(self, ranges: Sequence[QueueRange]) -> "NamesrvBrokerSource":
        """Return `open_source()`, which reads at slaves as brokers suggest."""
        return self.open_source()

    def find_source(self) -> "NamesrvBrokerSource":
        return self.open_source()

    def open_own_source(self) -> "NamesrvBrokerSource":
        return self.new_source_in(cluster_of(self.endpoint))

    def source_in(self, cluster: RocketMQCluster) -> "NamesrvBrokerSource":
        """Return the source that this process keeps. Raises StoreNotSharedError."""
        key = os.getpid(), self
        if key not in _open:
            _open[key] = self.new_source_in(cluster)
        return _open[key]

    def new_source_in(self, cluster: RocketMQCluster) -> "NamesrvBrokerSource":
        """Return a new source. Raises StoreNotSharedError."""
        source = NamesrvBrokerSource(self, cluster)
        self.check_store(lambda: source.identities()[self.broker].store)
        return source


class NamesrvSource(ClusterSource):
    """The topics of a query at all their brokers."""

    def version(self) -> Hashable:
        """Return the versions of all brokers, which are asked at the same time."""
        return tuple(self._of_each(lambda source: source.version()))

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Return False immediately: `version` waits."""
        return False


def _refused(capability: Capability) -> Callable[..., NoReturn]:
    """Return a method for calls that are not made, because targets lack the capability."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise UnsupportedError(
            f"a cluster of RocketMQ has no {capability.value}.",
            remedy="Read from a target that supports it.",
        )

    return refuse


class NamesrvBrokerSource(RocketMQSource):
    """The topics of a query at one broker."""

    def __init__(self, target: NamesrvBrokerTarget, cluster: RocketMQCluster) -> None:
        seconds = target.endpoint.timeout_ms / 1000
        super().__init__(cluster, target.broker, target.topics, seconds, target.group)
        self._target = target

    @property
    def target(self) -> NamesrvBrokerTarget:
        """Return the target for the tasks, without the topics of the query."""
        store = self.identities()[self.broker].store
        return replace(self._target, topics=(), store_id=store)

    def by_broker(self, expected: Collection[str] = ()) -> "dict[str, NamesrvBrokerSource]":
        return {self.broker: self}

    def within(self, seconds: float, *, lock: float | None = None) -> "NamesrvBrokerSource":
        return self.limited(seconds)

    plan_view = read_view = _refused(Capability.VIEWS)


class NamesrvSink(RocketMQSink):
    """Sends rows at least once to a cluster."""

    stage = publish = discard = _refused(Capability.EXACTLY_ONCE)
