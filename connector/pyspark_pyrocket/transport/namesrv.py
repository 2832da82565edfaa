"""A cluster of Apache RocketMQ, which name servers know, as a target and a source.

Only the brokers of the topics that a query reads are called: name servers may know several
clusters. Routes, connections and what sources remember stay open, for each process.
"""

import os
import re
import socket
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from typing import NoReturn

from pyrocket import (
    RocketMQCluster,
    RocketMQSource,
    StoreConfig,
    is_system_topic,
)
from pyrocket.errors import OptionError, StoreNotSharedError, UnsupportedError

from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport.cluster_source import ClusterSource
from pyspark_pyrocket.transport.interface import Capability, MessageSink

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
    """

    endpoint: Endpoint

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
    ) -> MessageSink:
        """Raise OptionError: a cluster can only be read."""
        raise OptionError(
            "Writing to a cluster of RocketMQ is not supported yet.",
            remedy="Write to a store with 'path' or 'endpoint'.",
            code="OPTION_UNSUPPORTED",
        )

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
        waits: Whether servers that this process has never reached are awaited for as long as those
            that restart.
        group: The group in whose name messages are pulled; empty for one that all brokers have.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    waits: bool = False
    group: str = ""

    store_id = None
    broker = ""

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
        total = self.endpoint.timeout_ms / 1000
        patience = self.endpoint.patience(waits=self.waits)
        topics = self.topics
        if self.pattern:
            names = cluster.topic_names(patience)
            topics = tuple(
                name
                for name in names
                if re.fullmatch(self.pattern, name) and not is_system_topic(name, "", names)
            )
        routes = cluster.routes(topics, patience)

        def source_of(name: str) -> NamesrvBrokerSource:
            target = NamesrvBrokerTarget(self.endpoint, name, topics, group=self.group)
            return opened(target, cluster)

        def found(name: str) -> NamesrvBrokerSource:
            cluster.broker(name, total)
            return source_of(name)

        brokers = {name for route in routes.values() for name in route.queues}
        if not brokers:  # A query that waits for its topics needs one.
            brokers = {cluster.first_broker(patience)}
        return NamesrvSource(self, {name: source_of(name) for name in brokers}, found)


@dataclass(frozen=True)
class NamesrvBrokerTarget(_Named):
    """One broker of a cluster, from which tasks read.

    Attributes:
        broker: The name of the broker.
        topics: The topics that are planned; a task names the queues that it reads.
        store_id: The id of the only cluster that is opened; None for any.
        group: The group in whose name messages are pulled; empty for one that all brokers have.
    """

    broker: str = ""
    topics: tuple[str, ...] = ()
    store_id: str | None = None
    group: str = ""

    def describe(self) -> str:
        servers = ";".join(self.endpoint.name_servers)
        return f"the broker {self.broker} of the cluster of RocketMQ at {servers}"

    def of_store(self, store_id: str | None) -> "NamesrvBrokerTarget":
        return replace(self, store_id=store_id)

    def of_broker(self, name: str, earlier: str = "") -> "NamesrvBrokerTarget":
        return replace(self, broker=name) if name else self

    def waiting(self) -> "NamesrvBrokerTarget":
        """Return this target, which always waits."""
        return self

    def open_source(self) -> "NamesrvBrokerSource":
        return self.source_in(cluster_of(self.endpoint))

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
        if self.store_id is not None:
            found = source.identities()[self.broker].store
            if found != self.store_id:
                raise self.not_shared(f"it belongs to {found}, not to {self.store_id}")
        return source


class NamesrvSource(ClusterSource):
    """The topics of a query at all their brokers."""

    def version(self) -> Hashable:
        """Return the versions of all brokers, which are asked at the same time."""
        return tuple(self._of_each(lambda one: one.version()))

    def wait_for_change(self, version: Hashable, seconds: float) -> bool:
        """Return False immediately: `version` waits."""
        return False


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

    def plan_view(self, *_: object, **__: object) -> NoReturn:
        """Raise UnsupportedError: targets lack Capability.VIEWS."""
        raise UnsupportedError(
            f"a cluster of RocketMQ has no {Capability.VIEWS.value}.",
            remedy="Read from a target that supports it.",
        )

    read_view = plan_view
