"""TLS and the user of a connection to RocketMQ.

Each request is signed with the secret of its user. The signature covers neither time nor
connection, so without TLS an eavesdropper can repeat the request. Source: `AclClientRPCHook`,
`AclUtils.combineRequestContent`, `AclSigner`.
"""

import base64
import hmac
import ssl
from dataclasses import dataclass, field

from pyrocket.errors import OptionError
from pyrocket.remoting.frames import Frame

_USER, _SIGNATURE = "AccessKey", "Signature"


@dataclass(frozen=True, kw_only=True)
class Security:
    """How connections are encrypted, and who the user is.

    Attributes:
        tls: Whether connections are encrypted.
        ca: Trusted CA certificates as PEM; None for the system's certificates.
        server_name: The name that a server's certificate must have; empty for the host of the
            address. Brokers register addresses, which are rarely in their certificates.
        access_key: The user; empty without ACL.
        secret_key: The secret of the user; `repr` hides it.
    """

    tls: bool = False
    ca: bytes | None = field(default=None, repr=False)
    server_name: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext:
        """Return the settings of TLS. Raises OptionError if `ca` has no certificate."""
        try:
            return ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        except (ssl.SSLError, ValueError) as error:
            raise OptionError(
                f"the CA certificates cannot be read: {error}.",
                remedy="Name a file with certificates in PEM format.",
            ) from error

    def signed(self, request: Frame) -> Frame:
        """Return the request with the user and the signature."""
        if not self.access_key:
            return request
        fields = {**request.fields, _USER: self.access_key}
        values = "".join(fields[name] for name in sorted(fields))
        digest = hmac.digest(self.secret_key.encode(), values.encode() + request.body, "sha1")
        fields[_SIGNATURE] = base64.b64encode(digest).decode()
        return request._replace(fields=fields)
