"""The transports for the contract tests; a new transport needs an entry in `TRANSPORTS`.

A factory takes an empty folder and yields a `Made`: the target of a store without topics, and ways
to inject faults into its calls.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from pyrocket import Store, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import WriteLock
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.values.routes import Registration
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport import cluster, namesrv
from pyspark_pyrocket.transport import endpoint as broker_targets
from pyspark_pyrocket.transport.cluster import ClusterTarget
from pyspark_pyrocket.transport.endpoint import EndpointTarget
from pyspark_pyrocket.transport.interface import Target
from pyspark_pyrocket.transport.namesrv import NamesrvTarget
from pyspark_pyrocket.transport.path import PathTarget, forget

from support import name_server, rocketmq_server
from support.broker import Fault, served
from support.rocketmq_cluster import rocketmq


@dataclass
class Made:
    """A store without topics, accessed over one transport.

    other: The target of another store.
    busy: A context manager that delays calls that write.
    fail: Makes the next call with this name fail, before or after its effect; None if the transport
    cannot lose calls.
    fill: Creates a topic with this number of queues, and appends batches; None if a sink does it.
    """

    target: Target
    other: Target
    busy: Callable
    fail: Callable | None = None
    fill: Callable | None = None

    def send(self, topic, *batches, queues=None):
        """Append batches to a topic; with a number of queues, create it first."""
        if self.fill:
            self.fill(topic, *batches, queues=queues)
            return
        sink = self.target.open_sink()
        if queues:
            sink.prepare(topic, queues=queues)
        for one in batches:
            sink.append(one, topic=topic)
        sink.close()

    def sink_in_a_hurry(self):
        """Return a sink with a deadline of half a second."""
        if isinstance(self.target, PathTarget):
            return self.target.open_sink(config=StoreConfig(lock_timeout_ms=500))
        place = replace(self.target.endpoint, timeout_ms=500)
        return replace(self.target, endpoint=place).open_sink()


@contextmanager
def path_transport(folder) -> Iterator[Made]:
    """Yield a store in a directory. Calls are never lost, and wait only for the write lock."""
    targets = [PathTarget(str(folder / name)) for name in ("store", "other")]
    for target in targets:
        Store.open(target.path, create=True).close()

    @contextmanager
    def busy():
        layout = Layout(folder / "store")
        lock = WriteLock(layout.mutex, layout.turnstile, os.getpid)
        with lock.hold(1000):
            yield
        lock.close()

    yield Made(*targets, busy)
    for target in targets:
        target.close_source()


@contextmanager
def endpoint_transport(folder) -> Iterator[Made]:
    """Yield a broker in a thread of this process, whose server injects the faults."""
    stores = [Store.open(folder / name, create=True) for name in ("store", "other")]
    faults: list[Fault] = []
    with served(stores[0], faults=faults) as address, served(stores[1]) as elsewhere:
        targets = [EndpointTarget(Endpoint(addresses=(at,))) for at in (address, elsewhere)]

        @contextmanager
        def busy():
            faults.extend(Fault(call, seconds=5) for call in ("append", "prepare"))
            yield
            faults.clear()

        def fail(call, *, after=False):
            faults.append(Fault(call, after))

        yield Made(*targets, busy, fail)
        for target in targets:
            target.close_source()


@contextmanager
def cluster_transport(folder) -> Iterator[Made]:
    """Yield two brokers in threads of this process, and a name server that knows them.

    The sink of the cluster writes to the first broker, whose server injects the faults.
    """
    faults: list[Fault] = []
    table = RouteTable()
    with ExitStack() as stack:
        for name in ("broker-a", "broker-b"):
            config = StoreConfig(broker_name=name)
            store = Store.open(folder / name, create=True, config=config)
            broker = served(store, faults=faults if name == "broker-a" else None)
            register(table, name, stack.enter_context(broker))
        target = ClusterTarget(
            Endpoint(addresses=(stack.enter_context(name_server.serving(table)),))
        )
        stack.callback(disconnect)

        @contextmanager
        def busy():
            faults.extend(Fault(call, seconds=5) for call in ("append", "prepare"))
            yield
            faults.clear()

        def fail(call, *, after=False):
            faults.append(Fault(call, after))

        yield Made(target, target, busy, fail)


@contextmanager
def rocketmq_transport(folder) -> Iterator[Made]:
    """Yield a fake cluster of RocketMQ with one broker, which injects the faults."""
    with rocketmq(folder) as cluster:
        store, faults = cluster.brokers[0].store, cluster.brokers[0].faults

        def fill(topic, *batches, queues=None):
            if queues:
                store.topics.create(topic, read_queues=queues, write_queues=queues)
            for one in batches:
                store.append_batch(one, topic=topic)

        def fail(call, *, after=False):
            faults.append(rocketmq_server.Fault("lose" if after else "cut", REQUESTS.get(call)))

        @contextmanager
        def busy():
            faults.append(rocketmq_server.Fault("silence", 320, -1))
            yield
            faults.clear()

        target = namesrv_target(cluster, "t")
        other = replace(target.of_broker("broker-a"), store_id="rocketmq:other")
        yield Made(target, other, busy, fail, fill=fill)
        target.close_source()


REQUESTS = {"bounds": 202, "committed": 14, "mark": 11, "slices": 11, "joined_slice": 11}
"""Call → the code of the request that fails; of other calls, any request."""


def namesrv_target(cluster, *topics, **settings):
    """Return the target of topics of a cluster of RocketMQ."""
    return NamesrvTarget(Endpoint(name_servers=tuple(cluster.addresses), **settings), topics)


def register(table, name, address):
    """Register a broker for as long as its name is not disconnected."""
    table.register(Registration("c", name, 0, address, 1, ()), name)


TRANSPORTS = {
    "path": path_transport,
    "endpoint": endpoint_transport,
    "cluster": cluster_transport,
    "rocketmq": rocketmq_transport,
}
WRITABLE = ["path", "endpoint", "cluster"]
"""The transports with exactly-once writes."""

OF_ONE_BROKER = ["path", "endpoint"]
UNRELIABLE = ["endpoint", "cluster", "rocketmq"]
"""The transports that can lose calls."""


@contextmanager
def options_of(kind, path, port=0, **opening):
    """Yield the options that select a store: its `path`, or the `endpoint` of a broker here."""
    if kind == "path":
        yield {"path": str(path)}
        forget(str(path))
        return
    with served(Store.open(path, **opening), port) as address:
        yield {"endpoint": address}
        disconnect()


def disconnect():
    """Close this process's connections to brokers."""
    for _, known, name in [*broker_targets._open]:
        EndpointTarget(known, broker=name).close_source()
    for _, known in [*cluster._directories]:
        ClusterTarget(known).close_source()
    for _, known in [*namesrv._clusters]:
        NamesrvTarget(known).close_source()
    cluster._kinds.clear()
