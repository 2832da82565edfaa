"""`grpc.health.v1`, for load balancers and `grpc_health_probe`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from pyrocket.errors import PyrocketError
from pyrocket.rpc.descriptors import message_class
from pyrocket.rpc.service import SERVICE as BROKER

if TYPE_CHECKING:
    from pyrocket.rpc.proto.health_pb2 import HealthCheckRequest

SERVICE = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3
_SECONDS = 0.2


class Health:
    """Reports whether the server is serving; the empty service name means the whole server."""

    def __init__(
        self,
        is_stopping: Callable[[], bool],
        trouble: Callable[[], str] = str,
        service: str = BROKER,
    ) -> None:
        """`trouble` returns why the server is not ready, and may wait for the disk.

        `service` is the main service of the server.
        """
        self._is_stopping, self._trouble = is_stopping, trouble
        self._known = ("", service, SERVICE)
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
        status = await self._status(await self._service(request, context))
        if status == _UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._encode(status)

    async def _watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        service, sent = await self._service(request, context), None
        while True:
            ends = self._is_stopping()
            status = await self._status(service)
            if status != sent:
                yield self._encode(status)
                sent = status
            if ends:
                return
            await asyncio.sleep(_SECONDS)

    async def _service(self, request: bytes, context: Any) -> str:
        """Return the name of the service in a request; end the call if it is malformed."""
        try:
            return self._request.FromString(request).service
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request is malformed.")
            raise

    async def _status(self, service: str) -> int:
        if service not in self._known:
            return _UNKNOWN
        is_ready = not self._is_stopping() and not await asyncio.to_thread(self._trouble_or_error)
        return _SERVING if is_ready else _NOT_SERVING

    def _trouble_or_error(self) -> str:
        try:
            return self._trouble()
        except (PyrocketError, OSError) as error:
            return str(error)

    def _encode(self, status: int) -> bytes:
        return self._reply(status=status).SerializeToString()
