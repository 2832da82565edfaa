"""Detects that only the client or only the broker uses TLS.

gRPC reports a lost connection in both cases, and repeating the call cannot succeed.
"""

import socket
import ssl
from typing import Any

import grpc

from pyrocket.errors import TransportError

_TIMEOUT_S = 5
_DOCTOR = "`pyrocket doctor --endpoint`"


def tls_mismatch(error: Any, place: str, address: str) -> TransportError | None:
    """Return the error for a first call that failed with `error`; None if TLS is not the cause."""
    if not isinstance(error, grpc.RpcError):
        return None
    details = error.details() or ""
    if "wrong_version_number" in details.lower():
        return TransportError(
            f"The broker {place} does not use TLS, but the client does.",
            remedy="Remove `endpoint.tls` (in commands: --tls), or start the broker with"
            f" --tls-certificate: {_DOCTOR}.",
            repeat_is_safe=True,
        )
    if "Socket closed" in details and _speaks_tls(address):
        return TransportError(
            f"The broker {place} uses TLS, but the client does not.",
            remedy="Set `endpoint.tls` and `endpoint.ca` (in commands: --tls and --ca):"
            f" {_DOCTOR}.",
            repeat_is_safe=True,
        )
    return None


def _speaks_tls(address: str) -> bool:
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except (OSError, ValueError):
        return False
