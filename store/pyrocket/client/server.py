"""Which server a client uses: brokers at an `endpoint`, or a store at a `path`."""

import os
from collections.abc import Hashable
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

from pyrocket.base.arguments import check_text, check_type, path_of
from pyrocket.client.instance import Connect
from pyrocket.client.transport import ClientTransport
from pyrocket.errors import InvalidInputError

if TYPE_CHECKING:
    from pyrocket.base.credentials import Credentials


_URL_VARIABLE = "PYROCKET_ENDPOINT_URL"


class ClientTarget(NamedTuple):
    """A server, and how to connect to it.

    Attributes:
        key: Equal for clients that can share an instance.
    """

    key: Hashable
    connect: Connect


def server_of(
    endpoint: str | None,
    path: str | PathLike[str] | None,
    credentials: "Credentials | None" = None,
    *,
    endpoint_url: str | None = None,
    create: bool = False,
) -> ClientTarget:
    """Return the server that the caller of a client has named.

    endpoint_url: The URL of a text with the addresses; by default, that of the environment variable
        PYROCKET_ENDPOINT_URL if neither endpoint nor path is given.
    create: Whether a missing store is created.

    Raises InvalidInputError (CLIENT_SERVER) unless exactly one of the three is given, NOT_A_TEXT,
    STORE_PATH, ADDRESS_INVALID.
    """
    check_type(bool, "Use True or False.", create=create)
    if endpoint is None and path is None:
        endpoint_url = endpoint_url or os.environ.get(_URL_VARIABLE) or None
    given = [value for value in (endpoint, path, endpoint_url) if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"{len(given)} of endpoint, endpoint_url and path are given, not one.",
            remedy="Give the address of a broker as `endpoint`, or a directory as `path`.",
            code="CLIENT_SERVER",
        )
    if path is not None:
        return _store(os.path.realpath(path_of(path, "path", "STORE_PATH")), create=create)
    check_text(endpoint=given[0])
    return _brokers(str(given[0]), credentials, is_url=endpoint is None)


def _store(directory: str, *, create: bool) -> ClientTarget:
    async def opened() -> ClientTransport:
        # Clients of brokers need neither a store nor a broker library.
        from pyrocket.client.embedded import connect

        return await connect(directory, create=create)

    return ClientTarget(("path", directory), opened)


def _brokers(text: str, credentials: "Credentials | None", *, is_url: bool) -> ClientTarget:
    from pyrocket.base.arguments import parse_addresses
    from pyrocket.base.credentials import Credentials
    from pyrocket.remote.lookup import AddressUrl

    addresses = AddressUrl(text) if is_url else parse_addresses(text)
    key = text if is_url else addresses
    given = credentials or Credentials()

    async def opened() -> ClientTransport:
        from pyrocket.client.remote import connect

        return await connect(addresses, given)

    return ClientTarget(("endpoint", key, given), opened)
