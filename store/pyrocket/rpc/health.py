"""`grpc.health.v1`, for load balancers and `grpc_health_probe`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc

from pyrocket.rpc.descriptors import message_class
from pyrocket.rpc.service import SERVICE as BROKER

if TYPE_CHECKING:
    from pyrocket.rpc.proto.health_pb2 import HealthCheckRequest

SERVICE = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3
_SECONDS = 0.2


class Health:
    """Reports whether the server is serving; the empty service name means the whole server."""

    def __init__(self, serves: Callable[[], bool], service: str = BROKER) -> None:
        """`serves` returns whether the server is serving, `service` is its main service."""
        self._serves, self._known = serves, ("", service, SERVICE)
        self._request: type[HealthCheckRequest] = message_class("grpc.health.v1.HealthCheckRequest")
        self._reply = message_class("grpc.health.v1.HealthCheckResponse")

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service."""
        calls = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler(SERVICE, calls)

    async def _check(self, request: bytes, context: Any) -> bytes:
        status = self._status(request)
        if status == _UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._encode(status)

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        sent = None
        while sent != _NOT_SERVING:
            status = self._status(request)
            if status != sent:
                yield self._encode(status)
                sent = status
            await asyncio.sleep(_SECONDS)

    def _status(self, request: bytes) -> int:
        asked = self._request.FromString(request)
        if asked.service not in self._known:
            return _UNKNOWN
        return _SERVING if self._serves() else _NOT_SERVING

    def _encode(self, status: int) -> bytes:
        return self._reply(status=status).SerializeToString()
