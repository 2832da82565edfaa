"""A store as commands and notebooks use it, in its directory or at its broker.

Directory and broker provide a source, a sink and an admin with the same methods, so commands and
notebooks do not distinguish between them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyrocket.errors import OptionError, QueueNotFoundError
from pyrocket.message import MessageQueue, QueueRange, StoredMessage

if TYPE_CHECKING:
    from pyrocket.broker.admin import StoreAdmin
    from pyrocket.broker.sink import StoreSink
    from pyrocket.broker.source import StoreSource
    from pyrocket.formats.record_slice import RecordSlice
    from pyrocket.rpc.remote_admin import RemoteAdmin
    from pyrocket.rpc.remote_sink import RemoteSink
    from pyrocket.rpc.remote_source import RemoteSource
    from pyrocket.store import Store

_FIRST_ANSWER_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location of a store: its directory, or the addresses of its broker with credentials.

    Attributes:
        endpoint: host:port; several addresses of one broker are separated by commas.
        ca: PEM file with the trusted CA certificates.
        secret_key_file: File with the secret.
    """

    path: str = ""
    endpoint: str = ""
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

    def messages(self, ranges: Sequence[QueueRange]) -> Iterator[StoredMessage]:
        """Yield the messages of ranges, range after range."""
        for part in self.source.slices([each for each in ranges if each.end > each.start]):
            yield from messages_of(part)


ENVIRONMENT = {
    "path": "PYROCKET_STORE",
    "endpoint": "PYROCKET_ENDPOINT",
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


def connect(place: Place) -> Session:
    """Return a session at a broker. Raises TransportError within seconds, OptionError."""
    addresses = [part.strip() for part in place.endpoint.split(",")]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            raise OptionError(
                f"{address!r} is not the address of a broker.",
                remedy="Write host:port, such as localhost:8081 or [::1]:8081; separate several"
                " addresses by commas.",
            )
    try:
        from pyrocket.rpc.client import Client, Timeouts
        from pyrocket.rpc.connection import Connection, Credentials
        from pyrocket.rpc.remote_admin import RemoteAdmin
        from pyrocket.rpc.remote_sink import RemoteSink
        from pyrocket.rpc.remote_source import RemoteSource
    except ModuleNotFoundError as error:
        raise OptionError(
            f"connecting to a broker needs {error.name}, which is not installed.",
            remedy="Run: pip install '.[endpoint]' in the checkout of pyrocket.",
        ) from error

    secret = place.secret_key
    if place.secret_key_file:
        secret = _content("secret-key-file", place.secret_key_file).decode().strip()
    credentials = Credentials(
        tls=place.tls or bool(place.ca),
        ca=_content("ca", place.ca) if place.ca else None,
        access_key=place.access_key,
        secret_key=secret,
    )
    client = Client(Connection(addresses, credentials), Timeouts(first=_FIRST_ANSWER_S))
    source = RemoteSource(client)
    try:
        hello = source.hello
        return Session(place.endpoint, hello, source, RemoteSink(client), RemoteAdmin(client))
    except BaseException:
        source.close()
        raise


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"{name} is {path!r}, which cannot be read: {error.strerror}.",
            remedy="Name a readable file.",
        ) from error
