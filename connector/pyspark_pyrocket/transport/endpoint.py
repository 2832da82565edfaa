"""The broker of a store as a target, a source and a sink.

Connections stay open, one per broker and process. Spark forks its Python workers, and neither
connections nor the thread that follows versions survive a fork: each process opens its own.
"""

import os
import random
import socket
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace

from pyrocket import (
    Client,
    Connection,
    QueueRange,
    RemoteSink,
    RemoteSource,
    RouteLookup,
    StoreConfig,
    Timeouts,
    VersionWatch,
)
from pyrocket.errors import PyrocketError, StoreNotSharedError, TransportError

from pyspark_pyrocket.options.endpoint import ANY, Endpoint
from pyspark_pyrocket.transport.interface import Capability

_PAUSE_S = 0.05
_REPLICA_TIMEOUT_MS = 5000

_open: dict[tuple[int, Endpoint, str], "EndpointSource"] = {}
"""Process, addresses and name of the broker → its source."""


@dataclass(frozen=True)
class EndpointTarget:
    """The broker of a store.

    Attributes:
        endpoint: The broker's addresses, and the settings of calls.
        store_id: In a task, the uuid of the driver's store, empty if that has none; None on the
            driver, which accepts any store.
        waits: Whether a process that has not yet reached the broker waits for it as long as for a
            broker that restarts. Otherwise a wrong address is reported soon.
        broker: The name of the only broker that this target opens; empty for any broker.
        replicas: The addresses of its replicas, if tasks read them.
        name_servers: Those that know the broker's present address; empty for a fixed address.
    """

    endpoint: Endpoint
    store_id: str | None = None
    waits: bool = False
    broker: str = ""
    replicas: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()

    directory = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities in the broker's first reply that this release knows."""
        reported = self.open_source().hello.capabilities
        return frozenset(capability for capability in Capability if capability.value in reported)

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": ",".join(self.endpoint.addresses)}

    def describe(self) -> str:
        name = f" {self.broker}" if self.broker else ""
        return f"the broker{name} at {','.join(self.endpoint.addresses)}"

    def of_store(self, store_id: str | None) -> "EndpointTarget":
        return replace(self, store_id=store_id)

    def of_broker(self, name: str, earlier: str = "") -> "EndpointTarget":
        """Return the target that opens only the broker `name`, if a name is given."""
        return replace(self, broker=name) if name else self

    def waiting(self) -> "EndpointTarget":
        """Return the target that waits for a restart of the broker, also in new processes."""
        return replace(self, waits=True)

    def open_source(self) -> "EndpointSource":
        """Return the connection of this process.

        Checking the store's identity costs one call, unless the broker connection is unchanged.
        """
        key = os.getpid(), self.endpoint, self.broker
        if key not in _open:
            _open[key] = self._connect()
        source = _open[key]
        source.greet_if_new()
        return self._checked(source)

    def open_reader(self, ranges: Sequence[QueueRange]) -> "EndpointSource":
        """Return the source at which a task reads these ranges, which are planned at the primary.

        Without replicas, it is `open_source()`. A replica may be behind, so that it is read only if
        it has all the messages. Otherwise the primary is read with ANY, and a replica is awaited
        with REPLICA, for at most the timeout. Raises TransportError (REPLICA_UNAVAILABLE).
        """
        end = time.monotonic() + self.endpoint.timeout_ms / 1000
        while self.replicas:
            replica, failure = self._replica(), None
            try:
                source = replica.open_source()
                if source.client.connection.address not in self.replicas:
                    replica.close_source()  # It is at the primary now: the next task tries again.
                elif self._has(source, ranges):
                    return source
            except TransportError as error:
                failure = error
            if self.endpoint.read_from == ANY:
                break
            if time.monotonic() > end:
                what = "has no replica that can be reached and has the planned messages"
                raise no_replica(f"{self.describe()} {what}.") from failure
            time.sleep(_PAUSE_S)
        return self.open_source()

    def _replica(self) -> "EndpointTarget":
        """Return the target of a replica; with ANY, a read that it ends goes on at the primary."""
        address, place = random.choice(self.replicas), self.endpoint
        if place.read_from == ANY:
            place = replace(place, addresses=(address, *place.addresses))
        else:  # The next attempt, here or of Spark, may be at another replica.
            timeout_ms = min(place.timeout_ms, _REPLICA_TIMEOUT_MS)
            place = replace(place, addresses=(address,), timeout_ms=timeout_ms)
        return replace(self, endpoint=place, replicas=(), name_servers=())

    def _has(self, source: "EndpointSource", ranges: Sequence[QueueRange]) -> bool:
        """Whether the source of a replica has all messages of these ranges."""
        bounds = source.queue_bounds({part.queue for part in ranges})
        has_all = all(part.end <= bounds[part.queue].maximum for part in ranges)
        epoch = max((part.epoch or 0 for part in ranges), default=0)
        if source.hello.epoch < epoch:
            source.greet()
        # In an earlier epoch, it may have messages that the primary has lost since then.
        return has_all and source.hello.epoch >= epoch

    find_source = open_source
    """A broker always has a store."""

    def close_source(self) -> None:
        source = _open.pop((os.getpid(), self.endpoint, self.broker), None)
        if source is not None:
            source.close()

    def open_own_source(self) -> "EndpointSource":
        return self._checked(self._connect())

    def open_sink(
        self, *, config: StoreConfig | None = None, create: bool = False, staging: bool = False
    ) -> "EndpointSink":
        """Return a sink over the connection of this process; the broker always has a store."""
        return EndpointSink(self.open_source().client, config)

    def _connect(self) -> "EndpointSource":
        """Return a source that connects with its first call."""
        total = self.endpoint.timeout_ms / 1000
        first = self.endpoint.patience(waits=self.waits or bool(self.store_id))
        credentials = self.endpoint.credentials()
        find = self._present_address if self.name_servers else None
        connection = Connection(self.endpoint.addresses, credentials, self.broker, find)
        client = Client(connection, Timeouts(total=total, first=first))
        return EndpointSource(self.endpoint, client, VersionWatch(client), self.broker)

    def _present_address(self) -> str:
        with closing(RouteLookup(self.name_servers, self.endpoint.credentials())) as lookup:
            try:
                return lookup.brokers().get(self.broker, "")
            except PyrocketError:
                return ""  # Of two failures, that of the broker is reported.

    def _checked(self, source: "EndpointSource") -> "EndpointSource":
        """Return the source. Raises TransportError if it is connected to another broker, and
        StoreNotSharedError if a task is connected to another store.
        """
        source.replicas, source.name_servers = self.replicas, self.name_servers
        if self.broker and source.hello.broker != self.broker:
            raise TransportError(
                f"The broker at {','.join(self.endpoint.addresses)} is {source.hello.broker}, not"
                f" {self.broker}.",
                remedy=f"Use an address of {self.broker}, or of a name server that knows it.",
                repeat_is_safe=True,
            )
        if self.store_id and source.store_id != self.store_id:
            raise self.not_shared(
                f"it serves the store {source.store_id or 'without an id'}, not {self.store_id}"
            )
        return source

    def not_shared(self, reason: str) -> StoreNotSharedError:
        return StoreNotSharedError(
            f"A task on {socket.gethostname()} uses {self.describe()} like the driver, but"
            f" {reason}.",
            remedy="The address has to lead to the same broker on the driver and all executors.",
        )


def no_replica(message: str) -> TransportError:
    """Return the error of a query that reads only replicas."""
    return TransportError(
        message,
        remedy="Start a replica with the name servers (pyrocket broker DIR --replica-of ADDRESS"
        " --nameserver ADDRESS), or use readFrom=any.",
        repeat_is_safe=True,
        code="REPLICA_UNAVAILABLE",
    )


class EndpointSource(RemoteSource):
    """A connection to a broker, for reading."""

    def __init__(
        self, endpoint: Endpoint, client: Client, watch: VersionWatch, broker: str = ""
    ) -> None:
        super().__init__(client, watch)
        self._endpoint, self._broker = endpoint, broker
        self.replicas: tuple[str, ...] = ()
        self.name_servers: tuple[str, ...] = ()
        self._greeted: object | None = None

    def greet_if_new(self) -> None:
        """Request the broker's identity, if the session of the version watch is new or missing."""
        session = self.watch.session
        if session is None or session is not self._greeted:
            self.greet()
            self._greeted = session

    @property
    def target(self) -> EndpointTarget:
        opened = EndpointTarget(self._endpoint, self.store_id, broker=self._broker)
        return replace(opened, replicas=self.replicas, name_servers=self.name_servers)

    def by_broker(self, expected: Collection[str] = ()) -> dict[str, "EndpointSource"]:
        return {self.hello.broker: self}

    def within(self, seconds: float, *, lock: float | None = None) -> "EndpointSource":
        limited = copy(self)
        limited.client = self.client.within(seconds)
        return limited


class EndpointSink(RemoteSink):
    """A connection to a broker, for writing."""

    def close(self, *, clean: bool = True) -> None:
        """Leave the connection open: the next task of this process uses it."""
