"""TLS and the signature of requests to RocketMQ.

Each request is signed with the secret of its user. The signature covers neither time nor
connection, so without TLS an eavesdropper can repeat the request. Source: `AclClientRPCHook`,
`AclUtils.combineRequestContent`, `AclSigner`.
"""

import base64
import hmac
import ssl

from pyrocket.base.credentials import Credentials
from pyrocket.errors import OptionError
from pyrocket.remoting.frames import Frame

_USER, _SIGNATURE = "AccessKey", "Signature"


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the settings of TLS. Raises OptionError if `ca` has no certificate."""
    try:
        ca = credentials.ca.decode() if credentials.ca else None
        return ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise OptionError(
            f"the CA certificates cannot be read: {error}.",
            remedy="Name a file with certificates in PEM format.",
        ) from error


def signed(credentials: Credentials, request: Frame) -> Frame:
    """Return the request with the user and the signature."""
    if not credentials.access_key:
        return request
    fields = {**request.fields, _USER: credentials.access_key}
    values = "".join(fields[name] for name in sorted(fields))
    digest = hmac.digest(credentials.secret_key.encode(), values.encode() + request.body, "sha1")
    fields[_SIGNATURE] = base64.b64encode(digest).decode()
    return request._replace(fields=fields)
