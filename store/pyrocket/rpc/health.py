"""`grpc.health.v1`, for load balancers and `grpc_health_probe`."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import grpc
from google.protobuf.message import DecodeError

from pyrocket.errors import InvalidInputError
from pyrocket.rpc.call_server import CallServer
from pyrocket.rpc.descriptors import message_class
from pyrocket.rpc.incoming import Incoming
from pyrocket.rpc.limits import Share
from pyrocket.rpc.service import SERVICE as BROKER

if TYPE_CHECKING:
    from pyrocket.rpc.proto.health_pb2 import HealthCheckRequest

SERVICE = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3
_SECONDS = 0.2

_REQUEST_BYTES = 4096
_WATCHES = 16
"""Maximum watches of a connection."""


class Health:
    """Reports whether a server is serving; the empty service name means the whole server."""

    def __init__(self, server: CallServer, service: str = BROKER) -> None:
        """`service` is the main service of the server."""
        self._server, self._known = server, ("", service, SERVICE)
        self._watches = Share(_WATCHES, server.limits.settings.parked_polls)
        self._request: type[HealthCheckRequest] = message_class("grpc.health.v1.HealthCheckRequest")
        self._reply = message_class("grpc.health.v1.HealthCheckResponse")

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service."""
        handler = partial(self._server.handler, anonymous=True)
        calls = {
            "Check": handler("Check", self._check),
            "Watch": handler("Watch", self._watch, streams=True),
        }
        return grpc.method_handlers_generic_handler(SERVICE, calls)

    async def _check(self, call: Incoming) -> bytes:
        status = self._status(await self._known_service(call))
        if status == _UNKNOWN:
            await call.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return call.reply(self._encode(status))

    async def _watch(self, call: Incoming) -> None:
        is_known, sent = await self._known_service(call), None
        with call.counted(self._watches, "the health watches"), call.parked():
            while sent != _NOT_SERVING:
                status = self._status(is_known)
                if status != sent:
                    await call.send(self._encode(status))
                    sent = status
                await asyncio.sleep(_SECONDS)

    async def _known_service(self, call: Incoming) -> bool:
        """Return whether the service in a request is known. Raises InvalidInputError."""
        request = await call.request()
        call.release_requests()
        if len(request) > _REQUEST_BYTES:
            raise _malformed(f"it has {len(request)} bytes; the maximum is {_REQUEST_BYTES}")
        try:
            return self._request.FromString(request).service in self._known
        except DecodeError:
            raise _malformed("it is no HealthCheckRequest") from None

    def _status(self, is_known: bool) -> int:
        if not is_known:
            return _UNKNOWN
        return _NOT_SERVING if self._server.is_stopping else _SERVING

    def _encode(self, status: int) -> bytes:
        return bytes(self._reply(status=status).SerializeToString())


def _malformed(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the health check is malformed: {reason}.",
        remedy="Send the name of a service, or none.",
        code="REQUEST_MALFORMED",
    )
