"""A store as commands and notebooks use it, in its directory or at its broker.

Directory and broker provide a source, a sink and an admin with the same methods, so commands and
notebooks do not distinguish between them. `open_session` opens one store, and `open_sessions` the
stores of all brokers that name servers know.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyrocket.errors import (
    OptionError,
    QueueNotFoundError,
    TopicNotFoundError,
    UnsupportedError,
)
from pyrocket.values.message import MessageQueue, QueueRange, StoredMessage

if TYPE_CHECKING:
    from pyrocket.broker.admin import StoreAdmin
    from pyrocket.broker.sink import StoreSink
    from pyrocket.broker.source import StoreSource
    from pyrocket.filters.message_filter import MessageFilter
    from pyrocket.formats.record_slice import RecordSlice
    from pyrocket.remote.admin import RemoteAdmin
    from pyrocket.remote.sink import RemoteSink
    from pyrocket.remote.source import RemoteSource
    from pyrocket.store import Store
    from pyrocket.wire.channel import Credentials

_FIRST_ANSWER_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location of a store: its directory, or the addresses of its broker with credentials.

    Attributes:
        endpoint: host:port; several addresses of one broker, or of name servers, are separated by
            commas.
        broker: The name of the broker, of those that the name servers know.
        ca: PEM file with the trusted CA certificates.
        secret_key_file: File with the secret.
    """

    path: str = ""
    endpoint: str = ""
    broker: str = ""
    tls: bool = False
    ca: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    secret_key_file: str = ""

    @property
    def name(self) -> str:
        """The directory or the addresses."""
        return self.endpoint or self.path


@dataclass(frozen=True)
class Session:
    """An open store, for a `with` block.

    Attributes:
        name: The directory, or the addresses of the broker.
        hello: The `broker.broker.Hello` of the broker, or of a broker that served the directory.
    """

    name: str
    hello: Any
    source: "StoreSource | RemoteSource"
    sink: "StoreSink | RemoteSink"
    admin: "StoreAdmin | RemoteAdmin"

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store or the connection."""
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
        return [QueueRange(each, has.minimum, has.maximum) for each, has in bounds.items()]

    def messages(
        self, ranges: Sequence[QueueRange], where: "MessageFilter | None" = None
    ) -> Iterator[StoredMessage]:
        """Yield the messages of ranges that `where` selects, range after range."""
        filled = [each for each in ranges if each.end > each.start]
        for part in self.source.slices(filled, where=where):
            yield from messages_of(part)


@dataclass(frozen=True)
class RouteRow:
    """The queues of a topic at one broker; the address of a broker that is gone is empty."""

    broker: str
    address: str
    read_queues: int
    write_queues: int
    perm: int


ENVIRONMENT = {
    "path": "PYROCKET_STORE",
    "endpoint": "PYROCKET_ENDPOINT",
    "broker": "PYROCKET_BROKER",
    "tls": "PYROCKET_TLS",
    "ca": "PYROCKET_CA",
    "access_key": "PYROCKET_ACCESS_KEY",
    "secret_key": "PYROCKET_SECRET_KEY",
    "secret_key_file": "PYROCKET_SECRET_KEY_FILE",
}
"""Field of `Place` → environment variable."""


def environment() -> dict[str, Any]:
    """Return the fields of `Place` that the environment sets."""
    found: dict[str, Any] = {
        name: os.environ[variable]
        for name, variable in ENVIRONMENT.items()
        if os.environ.get(variable)
    }
    if "tls" in found:
        found["tls"] = found["tls"].lower() in ("1", "true", "yes")
    return found


def broker_place() -> Place:
    """Return the broker set in the environment; its `endpoint` is empty if there is none."""
    return Place(**{name: value for name, value in environment().items() if name != "path"})


def messages_of(part: "RecordSlice") -> Iterator[StoredMessage]:
    """Yield the messages of a slice, decoded one by one. Raises StoreDamagedError."""
    from pyrocket.formats.record_decode import decode_record

    records = part.records
    for start, size in zip(records.starts.tolist(), records.sizes.tolist(), strict=True):
        yield decode_record(records.data[start : start + size].tobytes()).to_message()


def session_of(store: "Store") -> Session:
    """Return an open store as a session."""
    from pyrocket.broker.admin import StoreAdmin
    from pyrocket.broker.broker import hello_of
    from pyrocket.broker.sink import StoreSink
    from pyrocket.broker.source import StoreSource

    parts = StoreSource(store), StoreSink(store), StoreAdmin(store)
    return Session(str(store.path), hello_of(store), *parts)


@contextmanager
def open_session(place: Place, *, write: bool = False, create: bool = False) -> Iterator[Session]:
    """Open the store for a `with` block; a directory is opened read-only unless `write` is set.

    Raises StoreNotFoundError, TransportError, OptionError.
    """
    # Imported here because it takes half a second, which would slow down `--help`.
    from pyrocket.store import Store

    if place.endpoint:
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
        if not place.endpoint:
            yield [stack.enter_context(open_session(place))]
            return
        addresses, credentials = _server_of(place)
        first = _at_broker(addresses, credentials, place.endpoint)
        if first is not None:
            _check_broker(stack.enter_context(first), place)
            yield [first]
            return
        known = _known_brokers(addresses, credentials, place)
        yield [stack.enter_context(_at_known(one, known, credentials)) for one in sorted(known)]


def connect(place: Place) -> Session:
    """Return a session at a broker. Raises TransportError within seconds, OptionError.

    With name servers, the broker is the one that `place` names, or the only one.
    """
    addresses, credentials = _server_of(place)
    session = _at_broker(addresses, credentials, place.endpoint)
    if session is not None:
        _check_broker(session, place)
        return session
    known = _known_brokers(addresses, credentials, place)
    if len(known) > 1:
        raise OptionError(
            f"{place.endpoint} is a name server, and this needs one of its brokers.",
            remedy=f"Name it by `broker` (--broker): {', '.join(sorted(known))}.",
            code="BROKER_REQUIRED",
        )
    (name,) = known
    return _at_known(name, known, credentials)


def brokers_at(place: Place) -> dict[str, str]:
    """Return the addresses of the live brokers by name: those of name servers, or the broker's own.

    Raises OptionError (BROKER_UNKNOWN), TransportError, UnsupportedError.
    """
    addresses, credentials = _server_of(place)
    session = _at_broker(addresses, credentials, place.endpoint)
    if session is None:
        return _known_brokers(addresses, credentials, place)
    with session:
        _check_broker(session, place)
        return {session.hello.broker: place.endpoint}


def routes_at(place: Place, topic: str) -> "list[RouteRow]":
    """Return the queues of a topic at each broker that has it, ordered by broker.

    With name servers, ordered topics also have the queues of brokers that are gone, whose address
    is empty. Raises TopicNotFoundError, and the errors of `brokers_at`.
    """
    addresses, credentials = _server_of(place)
    session = _at_broker(addresses, credentials, place.endpoint)
    if session is not None:
        with session:
            _check_broker(session, place)
            found = session.source.topic(topic)
            settings = found.read_queues, found.write_queues, found.perm
            return [RouteRow(session.hello.broker, place.endpoint, *settings)]
    known = _known_brokers(addresses, credentials, place)
    from pyrocket.remote.lookup import RouteLookup

    lookup = RouteLookup(addresses, credentials)
    try:
        route = lookup.route(topic, fresh=True)
    finally:
        lookup.close()
    rows = [
        RouteRow(one.broker, address, one.topic.read_queues, one.topic.write_queues, one.topic.perm)
        for queues, at in ((route.queues, known), (route.gone, {}))
        for one in queues
        if (address := at.get(one.broker, "")) or queues is route.gone
    ]
    if not rows:
        raise TopicNotFoundError(
            f"no live broker has the topic {topic!r}.",
            remedy=f"The live brokers are {', '.join(sorted(known))}; `pyrocket topic list"
            " --broker NAME` lists the topics of one.",
        )
    return sorted(rows, key=attrgetter("broker"))


def _server_of(place: Place) -> "tuple[list[str], Credentials]":
    """Return the addresses and the credentials. Raises OptionError."""
    addresses = [part.strip() for part in place.endpoint.split(",")]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            raise OptionError(
                f"{address!r} is not the address of a broker.",
                remedy="Write host:port, such as localhost:8081 or [::1]:8081; separate several"
                " addresses by commas.",
            )
    return addresses, credentials_of(place)


def credentials_of(place: Place) -> "Credentials":
    """Return the TLS settings and the user of `place`.

    Raises OptionError if a file cannot be read, PackageMissingError without the extra `endpoint`.
    """
    from pyrocket.wire.channel import Credentials

    secret = place.secret_key
    if place.secret_key_file:
        secret = _content("secret-key-file", place.secret_key_file).decode().strip()
    return Credentials(
        tls=place.tls or bool(place.ca),
        ca=_content("ca", place.ca) if place.ca else None,
        access_key=place.access_key,
        secret_key=secret,
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
    from pyrocket.remote.sink import RemoteSink
    from pyrocket.remote.source import RemoteSource

    client = Client(Connection(addresses, credentials, name), Timeouts(first=_FIRST_ANSWER_S))
    source = RemoteSource(client)
    try:
        return Session(title, source.hello, source, RemoteSink(client), RemoteAdmin(client))
    except UnsupportedError as error:
        source.close()
        if error.code != "PROTOCOL_UNKNOWN":
            raise
        return None
    except BaseException:
        source.close()
        raise


def _known_brokers(
    addresses: list[str], credentials: "Credentials", place: Place
) -> dict[str, str]:
    """Return the addresses of the brokers that name servers know, or of the broker of `place`.

    Raises UnsupportedError (PROTOCOL_UNKNOWN) if the addresses are not those of name servers,
    OptionError (BROKER_UNKNOWN), TransportError.
    """
    from pyrocket.remote.lookup import RouteLookup

    lookup = RouteLookup(addresses, credentials)
    try:
        known = lookup.brokers()
    except UnsupportedError:
        raise UnsupportedError(
            f"The gRPC server at {place.endpoint} is neither a pyrocket broker nor a name server.",
            remedy="Use the address of a `pyrocket broker` or a `pyrocket nameserver`.",
            code="PROTOCOL_UNKNOWN",
        ) from None
    finally:
        lookup.close()
    if not known or place.broker not in ("", *known):
        wanted = f"broker {place.broker!r}" if place.broker else "live broker"
        raise OptionError(
            f"the name server at {place.endpoint} knows no {wanted}.",
            remedy=f"Its live brokers are: {', '.join(sorted(known)) or 'none'}.",
            code="BROKER_UNKNOWN",
        )
    return {place.broker: known[place.broker]} if place.broker else known


def _at_known(name: str, known: Mapping[str, str], credentials: "Credentials") -> Session:
    session = _at_broker([known[name]], credentials, f"{name} at {known[name]}", name)
    if session is None:
        raise UnsupportedError(
            f"The server of {name} at {known[name]} is not a pyrocket broker.",
            remedy="Check the broker's setting `advertise`.",
            code="PROTOCOL_UNKNOWN",
        )
    return session


def _check_broker(session: Session, place: Place) -> None:
    if place.broker not in ("", session.hello.broker):
        session.close()
        raise OptionError(
            f"the broker at {place.endpoint} is {session.hello.broker}, not {place.broker}.",
            remedy="Use the address of that broker, or of a name server that knows it.",
            code="BROKER_UNKNOWN",
        )


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"{name} is {path!r}, which cannot be read: {error.strerror}.",
            remedy="Name a readable file.",
        ) from error
