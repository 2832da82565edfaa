"""Tells brokers from name servers, and finds the brokers that name servers know."""

import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from pyrocket.errors import OptionError, UnsupportedError
from pyrocket.rpc.connection import Credentials
from pyrocket.rpc.nameserver.lookup import RouteLookup

OTHER_SERVER = "PROTOCOL_UNKNOWN"
"""The code of a first call that a gRPC server which is no broker has answered."""


def is_broker(greet: Callable[[], object]) -> bool:
    """Whether a broker answers its first call, `greet`, or another gRPC server.

    Raises the other errors of the call.
    """
    try:
        greet()
    except UnsupportedError as error:
        if error.code != OTHER_SERVER:
            raise
        return False
    return True


def live_brokers(addresses: Sequence[str], credentials: Credentials) -> dict[str, str]:
    """Return the addresses of the live brokers by name, as name servers know them.

    Raises UnsupportedError (PROTOCOL_UNKNOWN) for addresses of other servers, TransportError.
    """
    with closing(RouteLookup(addresses, credentials)) as lookup:
        try:
            return lookup.brokers()
        except UnsupportedError:
            raise UnsupportedError(
                f"The gRPC server at {','.join(addresses)} is neither a pyrocket broker nor a name"
                " server.",
                remedy="Use the address of a `pyrocket broker` or a `pyrocket nameserver`.",
                code=OTHER_SERVER,
            ) from None


def read_credentials(
    *,
    tls: bool,
    ca: str,
    access_key: str,
    secret_key: str,
    secret_key_file: str,
    names: tuple[str, str] = ("ca", "secret-key-file"),
) -> Credentials:
    """Return the TLS settings and the user; `ca` and `secret_key_file` are files.

    names: Those of the two files in errors.

    Raises OptionError if a file cannot be read.
    """
    if secret_key_file:
        secret_key = _content(names[1], secret_key_file).decode().strip()
    trusted = _content(names[0], ca) if ca else None
    return Credentials(tls=tls, ca=trusted, access_key=access_key, secret_key=secret_key)


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"{name} is {path!r}, which cannot be read on {socket.gethostname()}:"
            f" {error.strerror}.",
            remedy="Name a file that can be read on each machine that connects.",
        ) from error
