"""The transports for the contract tests; a new transport needs an entry in `TRANSPORTS`.

A factory takes an empty folder and yields a `Made`: the target of a store without topics, and ways
to inject faults into its calls.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pyrocket import Store, StoreConfig
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import WriteLock
from pyrocket.server.nameserver.route_table import RouteTable
from pyrocket.values.routes import Registration
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport import cluster
from pyspark_pyrocket.transport import endpoint as broker_targets
from pyspark_pyrocket.transport.cluster import ClusterTarget
from pyspark_pyrocket.transport.endpoint import EndpointTarget
from pyspark_pyrocket.transport.interface import Target
from pyspark_pyrocket.transport.path import PathTarget, forget

from support import name_server
from support.broker import Fault, served


@dataclass
class Made:
    """A store without topics, accessed over one transport.

    other: The target of another store.
    busy: A context manager that delays calls that write.
    fail: Makes the next call with this name fail, before or after its effect; None if the transport
    cannot lose calls.
    """

    target: Target
    other: Target
    busy: Callable
    fail: Callable | None = None


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


def register(table, name, address):
    """Register a broker for as long as its name is not disconnected."""
    table.register(Registration("c", name, 0, address, 1, ()), name)


TRANSPORTS = {
    "path": path_transport,
    "endpoint": endpoint_transport,
    "cluster": cluster_transport,
}
OF_ONE_BROKER = ["path", "endpoint"]
UNRELIABLE = ["endpoint", "cluster"]
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
    cluster._kinds.clear()
