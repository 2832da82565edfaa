"""The user of a client, the certificates that it trusts, and the signature of its calls.

Calls over gRPC are signed as RocketMQ does: MQv2-HMAC-SHA1, in the metadata `authorization`. The
signature covers only the date, so without TLS an eavesdropper can replay it.
"""

import hmac
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from pyrocket.errors import OptionError

SCHEME = "MQv2-HMAC-SHA1"
DATE_KEY, AUTHORIZATION_KEY = "x-mq-date-time", "authorization"
_FIELD = re.compile(r"([A-Za-z]+)=([^,\s]*)")

CallMetadata = tuple[tuple[str, str], ...]


def sign(access_key: str, secret: str) -> CallMetadata:
    """Return the metadata of a call made now."""
    date = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.new(secret.encode(), date.encode(), "sha1").hexdigest()
    text = f"{SCHEME} Credential={access_key}, SignedHeaders={DATE_KEY}, Signature={signature}"
    return (DATE_KEY, date), (AUTHORIZATION_KEY, text)


def parse(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, bytes, bytes] | None:
    """Return the access key, the signed bytes and the signature of a call, or None.

    Some clients append region and service to the access key. An empty key means no credentials.
    """
    headers = {key: value for key, value in metadata if isinstance(value, str)}
    scheme, _, rest = headers.get(AUTHORIZATION_KEY, "").partition(" ")
    parts = dict(_FIELD.findall(rest))
    key = parts.get("Credential", "").partition("/")[0]
    if scheme != SCHEME or not key:
        return None
    try:
        signature = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        signature = b""
    return key, headers.get(DATE_KEY, "").encode(), signature


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The user of a client, and the certificates that it trusts.

    Attributes:
        tls: Whether the connection is encrypted.
        ca: Trusted CA certificates as PEM; None for the system's certificates.
        access_key: The user; empty without credentials.
        secret_key: The user's secret; `repr` hides it.
        server_name: The name that the certificate of a server must have; empty for the host of its
            address. Brokers of RocketMQ register addresses, which certificates rarely name.
    """

    tls: bool = False
    ca: bytes | None = field(default=None, repr=False)
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    server_name: str = ""

    def metadata(self) -> CallMetadata:
        """Return the metadata that authenticates a call made now."""
        return sign(self.access_key, self.secret_key) if self.access_key else ()


def read_credentials(
    *,
    tls: bool,
    ca: str,
    access_key: str,
    secret_key: str,
    secret_key_file: str,
    server_name: str = "",
    names: tuple[str, str] = ("ca", "secret-key-file"),
) -> Credentials:
    """Return the TLS settings and the user; `ca` and `secret_key_file` are files.

    names: Those of the two files in errors.

    Raises OptionError if a file cannot be read.
    """
    if secret_key_file:
        secret_key = _content(names[1], secret_key_file).decode().strip()
    trusted = _content(names[0], ca) if ca else None
    return Credentials(
        tls=tls, ca=trusted, access_key=access_key, secret_key=secret_key, server_name=server_name
    )


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"{name} is {path!r}, which cannot be read on {socket.gethostname()}:"
            f" {error.strerror}.",
            remedy="Name a file that can be read on each machine that connects.",
        ) from error
