"""Converts exceptions to gRPC statuses, and back; and the errors of calls to name servers.

A status carries the error in its trailing metadata, so that a client raises the same class as a
store in its own process. If the client's release does not have the class, it raises the most
general class with the same status.
"""

from typing import Any

import grpc

from pyrocket import errors
from pyrocket.errors import (
    DataLossError,
    InvalidInputError,
    PyrocketError,
    StoreDamagedError,
    StoreUnavailableError,
    TransportError,
    UnsupportedError,
)
from pyrocket.wire.descriptors import message_class
from pyrocket.wire.messages import fill

METADATA_KEY = "pyrocket-error-bin"

_STATUSES: list[tuple[type[PyrocketError], grpc.StatusCode]] = [
    (errors.TopicNotFoundError, grpc.StatusCode.NOT_FOUND),
    (errors.GroupNotFoundError, grpc.StatusCode.NOT_FOUND),
    (errors.QueueNotFoundError, grpc.StatusCode.NOT_FOUND),
    (errors.MessageNotFoundError, grpc.StatusCode.NOT_FOUND),
    (InvalidInputError, grpc.StatusCode.INVALID_ARGUMENT),
    (DataLossError, grpc.StatusCode.OUT_OF_RANGE),
    (StoreDamagedError, grpc.StatusCode.DATA_LOSS),
    (errors.NotAuthenticatedError, grpc.StatusCode.UNAUTHENTICATED),
    (errors.StorePermissionError, grpc.StatusCode.PERMISSION_DENIED),
    (errors.UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (errors.BrokerBusyError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (StoreUnavailableError, grpc.StatusCode.FAILED_PRECONDITION),
    (PyrocketError, grpc.StatusCode.FAILED_PRECONDITION),
]
"""The first matching class determines the status. UNAVAILABLE is not used,
because clients would repeat the calls.
"""

_MAX_TEXT = 600
"""In characters of up to four bytes. Message, remedy, and a text with both must fit into 8 KiB."""

ErrorMetadata = tuple[tuple[str, bytes], ...]


def status_of(error: PyrocketError) -> tuple[grpc.StatusCode, str, ErrorMetadata]:
    """Return the status, its text and its trailing metadata for an error."""
    code = next(code for kind, code in _STATUSES if isinstance(error, kind))
    detail = fill(
        message_class("pyrocket.v1.Error")(),
        {
            "kind": type(error).__name__,
            "code": error.code,
            "message": _short(error.message),
            "remedy": _short(error.remedy),
        },
    )
    return code, _short(str(error)), ((METADATA_KEY, detail.SerializeToString()),)


def _short(text: str) -> str:
    """Return the text, shortened to fit into the metadata of a status: 8 KiB by default."""
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def carried_error(status: grpc.RpcError, address: str) -> PyrocketError | None:
    """Return the error in a status of a pyrocket broker; None if the status has none.

    An error about credentials or rights also names the broker, since another broker may accept
    the user.
    """
    metadata = status.trailing_metadata() or ()
    carried = next((value for key, value in metadata if key == METADATA_KEY), None)
    if carried is None:
        return None
    detail = message_class("pyrocket.v1.Error").FromString(carried)
    kind = getattr(errors, detail.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, PyrocketError)):
        kind = next(
            (kind for kind, code in reversed(_STATUSES) if code == status.code()), PyrocketError
        )
    message = detail.message
    if issubclass(kind, errors.StorePermissionError):
        message = f"{message.rstrip('.')} (the broker at {address})."
    return kind(message, remedy=detail.remedy, code=detail.code)


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
