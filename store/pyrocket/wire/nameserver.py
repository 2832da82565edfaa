"""The service of name servers, and the errors of its clients."""

from typing import Any

import grpc

from pyrocket.errors import PyrocketError, TransportError, UnsupportedError
from pyrocket.wire.errors import carried_error

SERVICE = "pyrocket.v1.NameServer"
_REMEDY = "Check that the name server runs and can be reached, and the settings of TLS"


def call_error(address: str, call: str, error: Any, dates: str = "") -> PyrocketError:
    """Return the error that a name server has reported, or the error for a call without answer.

    `dates` is the `date_remedy` of the error.
    """
    if (carried := carried_error(error, address)) is not None:
        return carried
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedError(
            f"The gRPC server at {address} is not a name server.",
            remedy="Use the address of a `pyrocket nameserver`.",
            code="PROTOCOL_UNKNOWN",
        )
    return unanswered(address, call, f"{error.code().name}, {error.details()}", dates)


def unanswered(address: str, call: str, reason: str, dates: str = "") -> TransportError:
    """Return the error for a call without answer."""
    return TransportError(
        f"The name server at {address} did not answer {call}: {reason}.",
        remedy=f"{dates or _REMEDY}.",
        repeat_is_safe=True,
    )
