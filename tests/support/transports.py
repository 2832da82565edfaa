"""The transports for the contract tests; a new transport needs an entry in `TRANSPORTS`.

A factory takes an empty folder and yields a `Made`: the target of a store without topics, and ways
to inject faults into its calls.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyrocket import Store
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import WriteLock
from pyspark_pyrocket.options.endpoint import Endpoint
from pyspark_pyrocket.transport import endpoint as broker_targets
from pyspark_pyrocket.transport.endpoint import EndpointTarget
from pyspark_pyrocket.transport.interface import Target
from pyspark_pyrocket.transport.path import PathTarget, forget

from support.broker import served
from support.memory import Fault, MemoryBroker, MemoryTarget


@dataclass
class Made:
    """A store without topics, accessed over one transport.

    other: The target of another store.
    busy: A context manager that delays calls that write.
    fail: Makes the next call with this name fail, before or after its effect; None if the transport
    cannot lose calls.
    resumes: Whether the transport resumes a read after a lost connection.
    """

    target: Target
    other: Target
    busy: Callable
    fail: Callable | None = None
    resumes: bool = False


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
def memory_transport(folder) -> Iterator[Made]:
    """Yield a broker in the memory of this process."""
    broker, _ = MemoryBroker("memory"), MemoryBroker("other")

    @contextmanager
    def busy():
        slow = [Fault(call, seconds=20) for call in ("append", "prepare")]
        broker.faults += slow
        yield
        broker.faults.clear()

    def fail(call, *, after=False):
        broker.faults.append(Fault(call, after))

    yield Made(MemoryTarget("memory"), MemoryTarget("other"), busy, fail)


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

        yield Made(*targets, busy, fail, resumes=True)
        for target in targets:
            target.close_source()


TRANSPORTS = {
    "path": path_transport,
    "memory": memory_transport,
    "endpoint": endpoint_transport,
}
UNRELIABLE = ["memory", "endpoint"]
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
    for _, known in [*broker_targets._open]:
        EndpointTarget(known).close_source()
