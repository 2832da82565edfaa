"""Finds out why a connection with TLS fails.

Reasons are a certificate that is expired or not yet valid, and that only the client, or only the
broker, uses TLS.
"""

import re
import socket
import ssl
from datetime import datetime, timezone
from typing import Any

import grpc

from pyrocket.errors import TransportError

_TIMEOUT_S = 2
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME."""

_WRONG_DATE = re.compile("certificate (has expired|is not yet valid)")


def date_remedy(error: Any, address: str, ca: bytes | None) -> str:
    """Return what to do about a certificate that is rejected because of its dates.

    Connects to the server once more, because gRPC's error has no dates. Empty for other errors, and
    if the server cannot be reached.
    """
    if not _WRONG_DATE.search(error.details() or ""):
        return ""
    try:
        start, end = _dates(address, ca)
    except (OSError, ValueError):
        return ""
    return (
        f"The certificate of the server is valid from {start} to {end}. Renew it, and the CA"
        " certificates before it, or correct the clock of this machine"
    )


def _dates(address: str, ca: bytes | None) -> list[str]:
    """Return when the certificate becomes valid and when it expires. Raises OSError, ValueError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.create_default_context(cadata=ca.decode() if ca else None)
    context.verify_flags |= _NO_CHECK_TIME
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), _TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        certificate = secure.getpeercert() or {}
    dates = (str(certificate.get(name, "")) for name in ("notBefore", "notAfter"))
    return [shown(ssl.cert_time_to_seconds(date)) for date in dates]


def shown(seconds: float) -> str:
    """Return a time in epoch seconds as text."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"


_PROBE_S = 5
_SEE = "`pyrocket doctor --endpoint` checks each step."


def tls_mismatch(error: Any, place: str, address: str) -> TransportError | None:
    """Return the error for a first call that failed with `error`; None if TLS is not the cause.

    gRPC reports a lost connection if only one side uses TLS; repeating the call cannot succeed.
    """
    if not isinstance(error, grpc.RpcError):
        return None
    details = error.details() or ""
    if "wrong_version_number" in details.lower():
        return TransportError(
            f"The broker {place} does not use TLS, but the client does.",
            remedy=f"Remove `endpoint.tls`, or start the broker with --tls-certificate. {_SEE}",
            repeat_is_safe=True,
        )
    if "Socket closed" in details and _speaks_tls(address):
        return TransportError(
            f"The broker {place} uses TLS, but the client does not.",
            remedy=f"Set `endpoint.tls` and `endpoint.ca`. {_SEE}",
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
            socket.create_connection((host.strip("[]"), int(port)), _PROBE_S) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except (OSError, ValueError):
        return False
