"""A cluster of Apache RocketMQ, which name servers know, as a target and a source.

Only the brokers of the topics that a query reads are called: name servers may know several
clusters. Routes, connections and what sources remember stay open, for each process.
"""

import os
import re
import socket
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

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

if TYPE_CHECKING:
    from typing_extensions import Self

_clusters: dict[tuple[int, Endpoint], RocketMQCluster] = {}
"""Process and name servers → the connections to the cluster."""

_sources: dict[tuple[int, "NamesrvBrokerTarget"], "NamesrvBrokerSource"] = {}
"""Process and broker → its source, with what it remembers."""

_Opened = TypeVar("_Opened", "NamesrvBrokerSource", "NamesrvSink")


@dataclass(frozen=True)
class _Named:
    """What the targets of a cluster and of one of its brokers have in common.

    Attributes:
        endpoint: The name servers, and the settings of calls.
        topics: The topics that are planned or written; a task names the queues that it reads.
        pattern: The regular expression for the names of other topics; empty for none.
        broker: The name of the only broker; empty for all.
        store_id: The id of the only cluster that is opened; None for any.
        waits: Whether servers that this process has never reached are awaited for as long as those
            that restart.
        group: The group in whose name messages are pulled; empty for one that all brokers have.
    """

    endpoint: Endpoint
    topics: tuple[str, ...] = ()
    pattern: str = ""
    broker: str = ""
    store_id: str | None = None
    waits: bool = False
    group: str = ""

    capabilities = frozenset({Capability.GROUPS, Capability.LOOKUP})
    directory = None

    @property
    def options(self) -> dict[str, str]:
        return {"namesrv": ";".join(self.endpoint.name_servers)}

    @property
    def cluster(self) -> RocketMQCluster:
        """The cluster that this process keeps open."""
        key, endpoint = (os.getpid(), self.endpoint), self.endpoint
        if key not in _clusters:
            _clusters[key] = RocketMQCluster(
                endpoint.name_servers,
                endpoint.credentials(),
                broker_addresses=dict(endpoint.broker_addresses),
            )
        return _clusters[key]

    def describe(self) -> str:
        broker = f"the broker {self.broker} of " if self.broker else ""
        return f"{broker}the cluster of RocketMQ at {self.options['namesrv']}"

    def of_store(self, store_id: str | None) -> "Self":
        return replace(self, store_id=store_id)

    def of_broker(self, name: str, earlier: str = "") -> "NamesrvBrokerTarget":
        """Return the target of a broker; without a name, of all, to which a sink writes."""
        target = NamesrvBrokerTarget(self.endpoint, self.topics, group=self.group)
        return replace(target, broker=name or self.broker, store_id=self.store_id, waits=self.waits)

    def waiting(self) -> "Self":
        return replace(self, waits=True)

    def close_source(self) -> None:
        """Close the connections of this process to the cluster."""
        pid = os.getpid()
        for key in [key for key in _sources if key[0] == pid and key[1].endpoint == self.endpoint]:
            del _sources[key]
        cluster = _clusters.pop((pid, self.endpoint), None)
        if cluster is not None:
            cluster.close()

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "NamesrvSink":
        """Return a sink that sends to all brokers, or to that of the target."""
        seconds = self.endpoint.patience(waits=self.waits)
        sink = NamesrvSink(self.cluster, self.topics, broker=self.broker, seconds=seconds)
        return self.checked(sink)

    def checked(self, opened: _Opened) -> _Opened:
        """Return what was opened. Raises StoreNotSharedError if it is of another cluster."""
        if self.store_id is not None and opened.store_id != self.store_id:
            raise self.not_shared(f"it belongs to {opened.store_id}, not to {self.store_id}")
        return opened

    def not_shared(self, reason: str) -> StoreNotSharedError:
        return StoreNotSharedError(
            f"A task on {socket.gethostname()} uses the name servers at {self.options['namesrv']}"
            f" like the driver, but {reason}.",
            remedy="The addresses have to lead to the same cluster on all machines.",
        )


class NamesrvTarget(_Named):
    """The topics of a query in a cluster."""

    def open_source(self) -> "NamesrvSource":
        """Return a source of the brokers that have the topics now."""
        return self._opened(NamesrvBrokerTarget.open_source)

    find_source = open_source

    def open_own_source(self) -> "NamesrvSource":
        """Return a source whose connections are shared with those of this process."""
        return self._opened(NamesrvBrokerTarget.open_own_source)

    def _opened(
        self, opened: "Callable[[NamesrvBrokerTarget], NamesrvBrokerSource]"
    ) -> "NamesrvSource":
        cluster, patience = self.cluster, self.endpoint.patience(waits=self.waits)
        topics = self.topics
        if self.pattern:
            names = cluster.topic_names(patience)
            topics = tuple(
                name
                for name in names
                if re.fullmatch(self.pattern, name) and not is_system_topic(name, "", names)
            )
        routes = cluster.routes(topics, patience).values()
        brokers = {name for route in routes for name in route.queues}
        if not brokers:  # A query that waits for its topics needs one.
            brokers = {cluster.broker("", patience).name}

        def source_of(name: str) -> NamesrvBrokerSource:
            cluster.broker(name, self.endpoint.timeout_ms / 1000)
            return opened(NamesrvBrokerTarget(self.endpoint, topics, broker=name, group=self.group))

        return NamesrvSource(self, {name: source_of(name) for name in brokers}, source_of)


class NamesrvBrokerTarget(_Named):
    """One broker of a cluster, from which tasks read, or all brokers, to which they write."""

    def open_source(self) -> "NamesrvBrokerSource":
        """Return the source that this process keeps."""
        key = os.getpid(), self
        if key not in _sources:
            _sources[key] = self.open_own_source()
        return _sources[key]

    def open_reader(self, ranges: Sequence[QueueRange]) -> "NamesrvBrokerSource":
        """Return `open_source()`, which reads at slaves as brokers suggest."""
        return self.open_source()

    find_source = open_source

    def open_own_source(self) -> "NamesrvBrokerSource":
        return self.checked(NamesrvBrokerSource(self))


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

    def __init__(self, target: NamesrvBrokerTarget) -> None:
        seconds = target.endpoint.timeout_ms / 1000
        super().__init__(target.cluster, target.broker, target.topics, seconds, target.group)
        self._target = target

    @property
    def target(self) -> NamesrvBrokerTarget:
        """Return the target for the tasks, without the topics of the query."""
        return replace(self._target, topics=(), store_id=self.store_id)

    def by_broker(self, expected: Collection[str] = ()) -> "dict[str, NamesrvBrokerSource]":
        return {self.broker: self}

    plan_view = read_view = _refused(Capability.VIEWS)


class NamesrvSink(RocketMQSink):
    """Sends rows at least once to a cluster."""

    stage = publish = discard = _refused(Capability.EXACTLY_ONCE)
