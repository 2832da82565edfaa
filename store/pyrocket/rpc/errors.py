"""Exceptions to gRPC statuses, and back.

A status carries the error in its trailing metadata, so that a client raises the class that a store
in the same process would raise. A class that the client's release does not know becomes the nearest
one that the status stands for.
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
)
from pyrocket.rpc.descriptors import message_class
from pyrocket.rpc.messages import fill

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
"""The first class that fits. UNAVAILABLE is not among them: that is a call that may be repeated."""

_MAX_TEXT = 600
"""Characters of up to four bytes: message, remedy and both together, in one header block."""

Metadata = tuple[tuple[str, bytes], ...]


def status_of(error: PyrocketError) -> tuple[grpc.StatusCode, str, Metadata]:
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
    """Return a text cut to what the metadata of a status can carry: 8 KiB by default."""
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def carried_error(status: grpc.RpcError, address: str) -> PyrocketError | None:
    """Return the error that a broker of ours has put into a status; None if there is none.

    If it refuses the caller, the error names the broker's address: others may know the user.
    """
    metadata = status.trailing_metadata() or ()
    found = next((value for key, value in metadata if key == METADATA_KEY), None)
    if found is None:
        return None
    detail: Any = message_class("pyrocket.v1.Error").FromString(found)
    kind = getattr(errors, detail.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, PyrocketError)):
        kind = next(
            (one for one, code in reversed(_STATUSES) if code == status.code()), PyrocketError
        )
    message = detail.message
    if issubclass(kind, errors.StorePermissionError):
        message = f"{message.rstrip('.')} (the broker at {address})."
    return kind(message, remedy=detail.remedy, code=detail.code)
