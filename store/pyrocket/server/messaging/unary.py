"""Answers the calls of `apache.rocketmq.v2.MessagingService` that have one reply.

Every call that was received is answered with gRPC's status OK; its outcome is the status in the
reply.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pyrocket.broker.work import Work
from pyrocket.errors import InvalidInputError, PyrocketError
from pyrocket.server.call_server import CallServer
from pyrocket.server.gate import Gate
from pyrocket.server.incoming import CallOrigin, Incoming
from pyrocket.server.messaging.caller import Caller
from pyrocket.server.messaging.codes import RefusedError, refusal_of, status
from pyrocket.server.messaging.interface import new, parse

_LOG = logging.getLogger("pyrocket")

_KINDS = {
    **dict.fromkeys(("QueryRoute", "QueryAssignment", "GetOffset", "QueryOffset"), Work.READ),
    **dict.fromkeys(("RecallMessage", "EndTransaction"), Work.WRITE),
    "SendMessage": Work.SEND,
}
"""The kind of work of calls with one reply; for all others it is `Work.CHANGE`."""

Answer = Callable[[Any, Caller], Any]


class UnaryCalls:
    """Answers calls, and reports their errors as RocketMQ's codes. Used by one event loop."""

    def __init__(self, gate: Gate, server: CallServer) -> None:
        self._gate, self._server = gate, server

    def handlers(self, answers: Mapping[str, Answer]) -> dict[str, grpc.RpcMethodHandler]:
        """Return the handlers of calls by name, given the functions that answer the calls."""
        return {name: self._handler(name, answer) for name, answer in answers.items()}

    def _handler(self, name: str, answer: Answer) -> grpc.RpcMethodHandler:
        kind = _KINDS.get(name, Work.CHANGE)

        async def handle(call: Incoming) -> bytes:
            request = await call.request()
            try:
                reply = await self._server.run(
                    lambda: self._answer(name, answer, request, call.origin), kind
                )
            except Exception as error:
                reply = self._refused(call, error, request)
            return call.reply(bytes(reply.SerializeToString()))

        async def report(call: Incoming, error: Exception) -> bytes:
            return bytes(self._refused(call, error, b"").SerializeToString())

        return self._server.handler(name, handle, report=report)

    def _answer(self, name: str, answer: Answer, request: bytes, origin: CallOrigin) -> Any:
        caller = Caller.of(origin, self._gate)
        return answer(parse(f"{name}Request", request), caller)

    def refusal(self, call: Incoming, error: Exception) -> RefusedError:
        """Return the reply's code and text for an error of a call; log an unexpected error."""
        if isinstance(error, PyrocketError):
            error = self._gate.without_names(error)
        elif not isinstance(error, RefusedError | DecodeError):
            _LOG.error("a call failed unexpectedly", exc_info=error)
        refusal = refusal_of(error)
        call.status = refusal.code
        return refusal

    def _refused(self, call: Incoming, error: Exception, request: bytes) -> Any:
        """Return the reply to a rejected call.

        A reply to ChangeInvisibleDuration contains the old handle, because some clients always
        replace their handle by that of the reply.
        """
        name, refusal = call.name, self.refusal(call, error)
        reply = new(f"{name}Response", status=status(refusal.code, refusal.text))
        if name == "ChangeInvisibleDuration":
            with suppress(DecodeError, InvalidInputError):
                reply.receipt_handle = parse(f"{name}Request", request).receipt_handle
        return reply
