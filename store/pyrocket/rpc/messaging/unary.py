"""Answers the calls of `apache.rocketmq.v2.MessagingService` that have one reply.

Every call that was received is answered with gRPC's status OK; its outcome is the status in the
reply.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError

from pyrocket.errors import PyrocketError
from pyrocket.rpc.gate import Gate
from pyrocket.rpc.limits import Budget
from pyrocket.rpc.messaging.caller import Caller
from pyrocket.rpc.messaging.codes import RefusedError, refusal_of, status
from pyrocket.rpc.messaging.interface import new
from pyrocket.rpc.origin import Origin
from pyrocket.rpc.threads import Work

_LOG = logging.getLogger("pyrocket")

_KINDS = {
    **dict.fromkeys(("QueryRoute", "QueryAssignment", "GetOffset", "QueryOffset"), Work.READ),
    **dict.fromkeys(("RecallMessage", "EndTransaction"), Work.WRITE),
    "SendMessage": Work.SEND,
}
"""The kind of work of calls with one reply; for all others it is `Work.CHANGE`."""

_Value = TypeVar("_Value")
Answer = Callable[[Any, Caller], Any]


class Serving(Protocol):
    """The functions of the server that this service uses."""

    budget: Budget

    @property
    def observe(self) -> Callable[[str, str, float], None]:
        """Record the name, the status and the duration of a call."""
        ...

    def run(self, work: Callable[[], _Value], kind: Work = Work.READ) -> Awaitable[_Value]:
        """Run work in a thread for its kind."""
        ...

    async def send(self, context: Any, *replies: bytes) -> None:
        """Send replies of a stream; cancel the stream if the client does not read them."""
        ...

    def park(self, peer: str) -> AbstractContextManager[None]:
        """Count a waiting call of a connection. Raises BrokerBusyError if too many wait."""
        ...


class UnaryCalls:
    """Answers calls, and reports their errors as RocketMQ's codes. Used by one event loop."""

    def __init__(self, gate: Gate, serving: Serving) -> None:
        self._gate, self._serving = gate, serving

    def handlers(self, answers: Mapping[str, Answer]) -> dict[str, grpc.RpcMethodHandler]:
        """Return the handlers of calls by name, given the functions that answer the calls."""
        return {name: self._unary(name, answer) for name, answer in answers.items()}

    def _unary(self, name: str, answer: Answer) -> grpc.RpcMethodHandler:
        kind = _KINDS.get(name, Work.CHANGE)

        async def handle(request: bytes, context: Any) -> bytes:
            began, origin = time.monotonic(), Origin.of(context)
            try:
                async with self._serving.budget.hold(origin.peer, len(request)):
                    reply = await self._serving.run(
                        lambda: self._answer(name, answer, request, origin), kind
                    )
                code = "OK"
            except Exception as error:
                refusal = self.refusal(error)
                reply = _refused(name, request, refusal)
                code = refusal.code
            self._serving.observe(name, code, time.monotonic() - began)
            return bytes(reply.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(handle)

    def _answer(self, name: str, answer: Answer, request: bytes, origin: Origin) -> Any:
        caller = self.caller(origin)
        return answer(new(f"{name}Request").FromString(request), caller)

    def caller(self, origin: Origin) -> Caller:
        """Return the client of a call. Raises RefusedError, NotAuthenticatedError."""
        return Caller.of(origin.metadata, origin.peer, self._gate)

    def refusal(self, error: Exception) -> RefusedError:
        """Return the reply's code and text for an error; log an unexpected error."""
        if isinstance(error, PyrocketError):
            error = self._gate.without_names(error)
        elif not isinstance(error, RefusedError | DecodeError):
            _LOG.error("a call failed unexpectedly", exc_info=error)
        return refusal_of(error)


def _refused(name: str, request: bytes, refusal: RefusedError) -> Any:
    """Return the reply to a rejected call.

    A reply to ChangeInvisibleDuration contains the old handle, because some clients always replace
    their handle by that of the reply.
    """
    reply = new(f"{name}Response", status=status(refusal.code, refusal.text))
    if name == "ChangeInvisibleDuration":
        with suppress(DecodeError):
            reply.receipt_handle = new(f"{name}Request").FromString(request).receipt_handle
    return reply
