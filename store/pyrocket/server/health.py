"""`grpc.health.v1`, for load balancers and `grpc_health_probe`."""

import asyncio
from collections.abc import Callable
from functools import partial

import grpc
from google.protobuf.message import DecodeError

from pyrocket.errors import InvalidInputError, PyrocketError
from pyrocket.server.call_server import CallServer
from pyrocket.server.incoming import Incoming, Share
from pyrocket.wire.channel import SERVICE as BROKER
from pyrocket.wire.descriptors import message_class

SERVICE = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3
_SECONDS = 0.2

_REQUEST_BYTES = 4096
_WATCHES = 16
"""Maximum watches of a connection."""


class Health:
    """Reports whether a server is serving; the empty service name means the whole server."""

    def __init__(
        self, server: CallServer, trouble: Callable[[], str] = str, service: str = BROKER
    ) -> None:
        """`trouble` returns why the server is not ready, and may wait for the disk.

        `service` is the main service of the server.
        """
        self._server, self._trouble, self._known = server, trouble, ("", service, SERVICE)
        self._watches = Share(_WATCHES, server.limits.settings.parked_polls)
        self._asking: asyncio.Task[bool] | None = None
        self._asked_s = 0.0
        self._request = message_class("grpc.health.v1.HealthCheckRequest")
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
        if not await self._known_service(call):
            await call.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return call.reply(self._encode(_SERVING if await self._is_ready() else _NOT_SERVING))

    async def _watch(self, call: Incoming) -> None:
        is_known, sent = await self._known_service(call), None
        with call.counted(self._watches, "the health watches"), call.parked():
            while True:
                ends = self._server.is_stopping
                status = await self._status() if is_known else _UNKNOWN
                if status != sent:
                    await call.send(self._encode(status))
                    sent = status
                if ends:
                    return
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

    async def _status(self) -> int:
        """Return the status for a watch. All watches share one check in each interval."""
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now - self._asked_s >= _SECONDS):
            self._asking, self._asked_s = asyncio.ensure_future(self._is_ready()), now
        is_ready = await asyncio.shield(self._asking)
        return _SERVING if is_ready and not self._server.is_stopping else _NOT_SERVING

    async def _is_ready(self) -> bool:
        return not self._server.is_stopping and not await asyncio.to_thread(
            trouble_or_error, self._trouble
        )

    def _encode(self, status: int) -> bytes:
        return bytes(self._reply(status=status).SerializeToString())


def trouble_or_error(trouble: Callable[[], str]) -> str:
    """Return what `trouble` returns, or the error that it raises, as a text."""
    try:
        return trouble()
    except (PyrocketError, OSError) as error:
        return str(error)


def _malformed(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the health check is malformed: {reason}.",
        remedy="Send the name of a service, or none.",
        code="REQUEST_MALFORMED",
    )
