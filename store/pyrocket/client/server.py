"""Which server a client uses: brokers at an `endpoint`, or a store at a `path`."""

import os
from collections.abc import Hashable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from pyrocket.arguments import check_text, check_type, path_of
from pyrocket.client.instance import Connect, Instance
from pyrocket.client.transport import ClientTransport
from pyrocket.errors import InvalidInputError

if TYPE_CHECKING:
    from pyrocket.rpc.connection import Credentials


@dataclass(frozen=True)
class Server:
    """A server, and how to connect to it.

    Attributes:
        key: Equal for clients that can share an instance.
    """

    key: Hashable
    connect: Connect

    def acquire(self, name: str = "") -> Instance:
        """Return the instance for this server; see `Instance.acquire`."""
        return Instance.acquire(self.key, self.connect, name=name)


def server_of(
    endpoint: str | None,
    path: str | PathLike[str] | None,
    credentials: "Credentials | None" = None,
    *,
    create: bool = False,
) -> Server:
    """Return the server that the caller of a client has named.

    create: Whether a missing store is created.

    Raises InvalidInputError (CLIENT_SERVER) unless exactly one of both is given, NOT_A_TEXT,
    STORE_PATH, ADDRESS_INVALID.
    """
    check_type(bool, "Use True or False.", create=create)
    if (endpoint is None) == (path is None):
        raise InvalidInputError(
            "endpoint and path are both given." if endpoint else "neither endpoint nor path.",
            remedy="Give the address of a broker as `endpoint`, or a directory as `path`.",
            code="CLIENT_SERVER",
        )
    if endpoint is not None:
        check_text(endpoint=endpoint)
        return _brokers(endpoint, credentials)
    return _store(os.path.realpath(path_of(path, "path", "STORE_PATH")), create=create)


def _store(directory: str, *, create: bool) -> Server:
    async def connect() -> ClientTransport:
        # Clients of brokers need neither a store nor a broker library.
        from pyrocket.client.embedded import EmbeddedTransport

        return await EmbeddedTransport.open(directory, create=create)

    return Server(("path", directory), connect)


def _brokers(endpoint: str, credentials: "Credentials | None") -> Server:
    from pyrocket.client.remote import RemoteTransport
    from pyrocket.rpc.connection import Credentials
    from pyrocket.rpc.nameserver.lookup import parse_addresses

    addresses, given = parse_addresses(endpoint), credentials or Credentials()

    async def connect() -> ClientTransport:
        return await RemoteTransport.open(addresses, given)

    return Server(("endpoint", addresses, given), connect)
