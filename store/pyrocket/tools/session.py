"""A store as commands and notebooks use it, in its directory or at its broker.

Directory and broker provide a source, a sink, topics and groups with the same methods, so that
commands and notebooks do not distinguish between them. `open_session` opens one store, and
`open_sessions` the stores of all brokers that name servers know.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from pyrocket.base.arguments import parse_addresses, parse_named_addresses
from pyrocket.errors import (
    VERIFY_FIRST,
    OptionError,
    QueueNotFoundError,
    RecordDamagedError,
    StoreDamagedError,
    TopicNotFoundError,
    UnsupportedError,
)
from pyrocket.values.message import MessageQueue, QueueRange, StoredMessage
from pyrocket.values.routes import primaries

if TYPE_CHECKING:
    from pyrocket.base.credentials import Credentials
    from pyrocket.broker.sink import StoreSink
    from pyrocket.broker.source import StoreSource
    from pyrocket.filters.message_filter import MessageFilter
    from pyrocket.formats.record_slice import RecordSlice
    from pyrocket.remote.admin import RemoteAdmin
    from pyrocket.remote.sink import RemoteSink
    from pyrocket.remote.source import RemoteSource
    from pyrocket.remoting.cluster import RocketMQCluster
    from pyrocket.remoting.sink import RocketMQSink
    from pyrocket.store import Store
    from pyrocket.values.admin import TopicConfig

_FIRST_ANSWER_S = 5.0
_Known = TypeVar("_Known")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location of a store: its directory, or the addresses of its broker with credentials.

    Attributes:
        endpoint: host:port; several addresses of one broker, or of name servers, are separated by
            commas.
        namesrv: host:port of the name servers of a cluster of Apache RocketMQ, separated by `;`.
        broker_addresses: NAME=host:port of the brokers of that cluster whose registered addresses
            cannot be reached from here, separated by commas.
        broker: The name of the broker, of those that the name servers know.
        ca: PEM file with the trusted CA certificates.
        server_name: The name in the certificates of the servers, if it is not their host.
        secret_key_file: File with the secret.
    """

    path: str = ""
    endpoint: str = ""
    namesrv: str = ""
    broker_addresses: str = ""
    broker: str = ""
    tls: bool = False
    ca: str = ""
    server_name: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    secret_key_file: str = ""

    @property
    def name(self) -> str:
        """The directory or the addresses."""
        return self.endpoint or self.namesrv or self.path


@dataclass(frozen=True)
class Session:
    """An open store, for a `with` block.

    Attributes:
        name: The directory, or the addresses of the broker.
        hello: The `broker.broker.Hello` of the broker, or of a broker that served the directory;
            of a broker of RocketMQ, its name.
    """

    name: str
    hello: Any
    source: "StoreSource | RemoteSource"
    sink: "StoreSink | RemoteSink | RocketMQSink"
    admin: "Store | RemoteAdmin"

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.source.close()

    def ranges(self, topic: str, queue_id: int | None = None) -> list[QueueRange]:
        """Return the readable range of each queue of a topic, or of one queue.

        Raises TopicNotFoundError, QueueNotFoundError.
        """
        known = self.source.topic(topic)
        bounds = self.source.bounds([topic])
        if queue_id is not None:
            bounds |= self.source.retired([topic])
            queue = MessageQueue(topic, self.hello.broker, queue_id)
            if queue not in bounds:
                raise QueueNotFoundError(
                    f"topic {topic!r} has no queue {queue_id}.",
                    remedy=f"Its read queues are 0 to {known.read_queues - 1}.",
                )
            bounds = {queue: bounds[queue]}
        return [QueueRange(key, has.minimum, has.maximum) for key, has in bounds.items()]

    def messages(
        self, ranges: Sequence[QueueRange], where: "MessageFilter | None" = None
    ) -> Iterator[StoredMessage]:
        """Yield the messages of ranges that `where` selects, range after range."""
        filled = [span for span in ranges if span.end > span.start]
        for part in self.source.slices(filled, where=where):
            yield from messages_of(part)


@dataclass(frozen=True)
class RouteRow:
    """The queues of a topic at one broker, and the addresses of its replicas.

    The address of a broker that is gone is empty.
    """

    broker: str
    address: str
    read_queues: int
    write_queues: int
    perm: int
    replicas: Sequence[str] = ()


ENVIRONMENT = {one.name: f"PYROCKET_{one.name.upper()}" for one in fields(Place)}
ENVIRONMENT["path"] = "PYROCKET_STORE"
"""Field of `Place` → environment variable."""


def environment() -> dict[str, Any]:
    """Return the fields of `Place` that the environment sets."""
    given = {name: os.environ.get(variable) for name, variable in ENVIRONMENT.items()}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value}
    if "tls" in settings:
        settings["tls"] = settings["tls"].lower() in ("1", "true", "yes")
    return settings


def broker_place() -> Place:
    """Return the broker set in the environment; its `endpoint` is empty if there is none."""
    return Place(**{name: value for name, value in environment().items() if name != "path"})


def messages_of(part: "RecordSlice") -> Iterator[StoredMessage]:
    """Yield the messages of a slice, decoded one by one. Raises RecordDamagedError."""
    from pyrocket.formats.record_decode import decode_record

    records, topic = part.records, part.queue.topic
    columns = records.starts, records.sizes, records.queue_id, records.queue_offset
    for start, size, queue, at in zip(*(column.tolist() for column in columns), strict=True):
        try:
            yield decode_record(records.data[start : start + size].tobytes()).to_message()
        except StoreDamagedError as error:  # noqa: PERF203 - the message before it was yielded
            raise RecordDamagedError(
                f"offset {at} of queue {queue} of {topic!r}: {error.message}",
                remedy=f"{error.remedy or VERIFY_FIRST} The messages after it: `pyrocket message"
                f" show {topic} --queue {queue} --offset {at + 1}`.",
            ) from error


def session_of(store: "Store") -> Session:
    """Return an open store as a session."""
    from pyrocket.broker.broker import ServedStore
    from pyrocket.broker.sink import StoreSink

    served = ServedStore(store)
    return Session(str(store.path), served.hello(), served.source, StoreSink(store), store)


@contextmanager
def open_session(place: Place, *, write: bool = False, create: bool = False) -> Iterator[Session]:
    """Open the store for a `with` block; a directory is opened read-only unless `write` is set.

    Raises StoreNotFoundError, TransportError, OptionError.
    """
    # Imported here because it takes half a second, which would slow down `--help`.
    from pyrocket.store import Store

    if place.endpoint or place.namesrv:
        with connect(place) as session:
            yield session
    else:
        with Store.open(place.path, read_only=not write, create=create) as store:
            yield session_of(store)


@contextmanager
def open_sessions(place: Place) -> Iterator[list[Session]]:
    """Open the store, or the stores of all brokers that name servers know, for a `with` block.

    A directory is opened read-only. Raises the errors of `open_session`.
    """
    with ExitStack() as stack:
        if place.endpoint or place.namesrv:
            servers = _servers(place)
            yield [stack.enter_context(servers.session(name)) for name in sorted(servers.brokers)]
        else:
            yield [stack.enter_context(open_session(place))]


def connect(place: Place) -> Session:
    """Return a session at a broker. Raises TransportError within seconds, OptionError.

    With name servers, the broker is the one that `place` names, or the only one.
    """
    servers = _servers(place)
    if len(servers.brokers) > 1:
        servers.close()
        raise OptionError(
            f"{place.name} is a name server, and this needs one of its brokers.",
            remedy=f"Name it by `broker` (--broker): {', '.join(sorted(servers.brokers))}.",
            code="BROKER_REQUIRED",
        )
    (name,) = servers.brokers
    return servers.session(name)


def brokers_at(place: Place) -> dict[str, Mapping[int, str]]:
    """Return the addresses of the live brokers by name and id: replicas have ids above 0.

    They are those of name servers, or the broker's own.

    Raises OptionError (BROKER_UNKNOWN), TransportError, UnsupportedError.
    """
    servers = _servers(place)
    servers.close()
    return _named(place, servers.by_id)


def routes_at(place: Place, topic: str) -> "list[RouteRow]":
    """Return the queues of a topic at each broker that has it, ordered by broker.

    With name servers, ordered topics also have the queues of brokers that are gone, whose address
    is empty. Raises TopicNotFoundError, and the errors of `brokers_at`.
    """
    servers = _servers(place)
    if isinstance(servers, _Servers) and servers.broker is not None:
        with servers.broker as session:
            config = session.source.topic(topic)
            settings = config.read_queues, config.write_queues, config.perm
            return [RouteRow(session.hello.broker, place.endpoint, *settings)]
    known, rows = servers.brokers, servers.routes(topic)
    if not rows:
        raise TopicNotFoundError(
            f"no live broker has the topic {topic!r}.",
            remedy=f"The live brokers are {', '.join(sorted(known))}; `pyrocket topic list"
            " --broker NAME` lists the topics of one.",
        )
    return sorted(rows, key=attrgetter("broker"))


def _servers(place: Place) -> "_Servers | _RocketMQ":
    return _RocketMQ(place) if place.namesrv else _Servers(place)


class _Servers:
    """The broker or the name servers at the addresses of a place.

    Attributes:
        addresses, credentials: How the servers are reached.
        broker: A session at the broker; None for name servers.
        by_id: The addresses of the live brokers by name and id.
    """

    by_id: Mapping[str, Mapping[int, str]]

    def __init__(self, place: Place) -> None:
        """Raises OptionError (BROKER_UNKNOWN), TransportError, UnsupportedError."""
        self._place = place
        self.addresses, self.credentials = parse_addresses(place.endpoint), credentials_of(place)
        self.broker = _at_broker(self.addresses, self.credentials, place.endpoint)
        if self.broker is not None:
            self.by_id = {self.broker.hello.broker: {0: place.endpoint}}
            if place.broker not in ("", *self.by_id):
                self.broker.close()
                raise OptionError(
                    f"the broker at {place.endpoint} is {self.broker.hello.broker}, not"
                    f" {place.broker}.",
                    remedy="Use the address of that broker, or of a name server that knows it.",
                    code="BROKER_UNKNOWN",
                )
        else:
            from pyrocket.remote.lookup import live_brokers

            self.by_id = live_brokers(self.addresses, self.credentials)

    @cached_property
    def brokers(self) -> dict[str, str]:
        """The addresses of the primaries by name, or of the one that the place names."""
        return _named(self._place, primaries(self.by_id))

    def routes(self, topic: str) -> list[RouteRow]:
        """Return the queues of a topic at each broker, also at those that are gone."""
        from pyrocket.remote.lookup import RouteLookup

        with closing(RouteLookup(self.addresses, self.credentials)) as lookup:
            route = lookup.route(topic)
        live = [queues for queues in route.queues if queues.broker in self.brokers]
        rows = [_route_row(queues.broker, self.by_id, queues.topic) for queues in live]
        return rows + [_route_row(queues.broker, {}, queues.topic) for queues in route.gone]

    def session(self, name: str) -> Session:
        """Return the session at a broker. Raises UnsupportedError, TransportError."""
        if self.broker is not None:
            return self.broker
        address = self.brokers[name]
        session = _at_broker([address], self.credentials, f"{name} at {address}", name)
        if session is None:
            raise UnsupportedError(
                f"The server of {name} at {address} is not a pyrocket broker.",
                remedy="Check the broker's setting `advertise`.",
                code="PROTOCOL_UNKNOWN",
            )
        return session

    def close(self) -> None:
        if self.broker is not None:
            self.broker.close()


class _RocketMQ:
    """A cluster of Apache RocketMQ.

    Attributes:
        cluster: The connections to the cluster.
        by_id: The addresses of the live brokers by name and id.
        brokers: Those of the masters by name, or of the one that the place names.
    """

    def __init__(self, place: Place) -> None:
        """Raises OptionError, TransportError, UnsupportedError."""
        self.cluster = cluster_at(place)
        with closing(self.cluster):  # Later calls connect again.
            live = self.cluster.live_brokers(_FIRST_ANSWER_S)
        self.by_id = {name: broker.addresses for name, broker in live.items()}
        self.brokers = _named(place, {name: at.get(0, "") for name, at in self.by_id.items()})

    def session(self, name: str) -> Session:
        from pyrocket.remoting.sink import RocketMQSink
        from pyrocket.tools.rocketmq import BrokerOfRocketMQ, RocketMQGroups

        source: Any = BrokerOfRocketMQ(self.cluster, name, ())
        # Only brokers of RocketMQ 5 limit a topic to a type of messages.
        topics = SimpleNamespace(get=source.topic, message_type=lambda name: "")
        admin: Any = SimpleNamespace(topics=topics, groups=RocketMQGroups(source))
        sink = RocketMQSink(self.cluster, broker=name)
        return Session(name, SimpleNamespace(broker=name), source, sink, admin)

    def routes(self, topic: str) -> list[RouteRow]:
        """Return the queues of a topic at each broker."""
        with closing(self.cluster):
            routes = self.cluster.routes([topic], _FIRST_ANSWER_S).values()
        return [
            _route_row(name, self.by_id if name in self.brokers else {}, own)
            for route in routes
            for name, own in route.queues.items()
        ]

    def close(self) -> None:
        self.cluster.close()


def _route_row(name: str, by_id: Mapping[str, Mapping[int, str]], topic: "TopicConfig") -> RouteRow:
    addresses = by_id.get(name, {})
    replicas = [addresses[number] for number in sorted(addresses) if number]
    settings = topic.read_queues, topic.write_queues, topic.perm
    return RouteRow(name, addresses.get(0, ""), *settings, replicas)


def cluster_at(place: Place) -> "RocketMQCluster":
    """Return the cluster with the name servers of `place`. Raises OptionError."""
    from pyrocket.remoting.cluster import RocketMQCluster

    given, servers = place.broker_addresses, parse_addresses(place.namesrv)
    replaced = parse_named_addresses(given) if given else {}
    return RocketMQCluster(servers, credentials_of(place), broker_addresses=replaced)


def _named(place: Place, known: Mapping[str, _Known]) -> dict[str, _Known]:
    """Return the live brokers, or the one that the place names. Raises OptionError."""
    if not known or place.broker not in ("", *known):
        wanted = f"broker {place.broker!r}" if place.broker else "live broker"
        raise OptionError(
            f"the name server at {place.name} knows no {wanted}.",
            remedy=f"Its live brokers are: {', '.join(sorted(known)) or 'none'}.",
            code="BROKER_UNKNOWN",
        )
    return {place.broker: known[place.broker]} if place.broker else dict(known)


def credentials_of(place: Place) -> "Credentials":
    """Return the TLS settings and the user of `place`.

    Raises OptionError if a file cannot be read, PackageMissingError without the extra `endpoint`.
    """
    from pyrocket.base.credentials import read_credentials

    return read_credentials(
        tls=place.tls or bool(place.ca),
        ca=place.ca,
        server_name=place.server_name,
        access_key=place.access_key,
        secret_key=place.secret_key,
        secret_key_file=place.secret_key_file,
    )


def _at_broker(
    addresses: Sequence[str], credentials: "Credentials", title: str, name: str = ""
) -> Session | None:
    """Return a session at the broker with these addresses; None if they are not a broker's.

    name: The name of the broker, if it is known, for errors.
    """
    from pyrocket.remote.admin import RemoteAdmin
    from pyrocket.remote.client import Client, Timeouts
    from pyrocket.remote.connection import Connection
    from pyrocket.remote.lookup import is_broker
    from pyrocket.remote.sink import RemoteSink
    from pyrocket.remote.source import RemoteSource

    client = Client(Connection(addresses, credentials, name), Timeouts(first=_FIRST_ANSWER_S))
    source = RemoteSource(client)
    try:
        if is_broker(lambda: source.hello):
            return Session(title, source.hello, source, RemoteSink(client), RemoteAdmin(client))
    except BaseException:
        source.close()
        raise
    source.close()
    return None
