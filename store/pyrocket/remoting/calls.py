"""The form of a call: its request, and how the answer is read.

A call is a value, so that calls of any kind can be made at once: see `ask`. Reading makes only
calls that need no more than the rights of a consumer, and that change nothing but committed
offsets: never a heartbeat, which makes the caller a member of its group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyrocket.formats.fastjson import PARSE_ERRORS, loads
from pyrocket.remoting.codes import RequestCode, ResponseCode, error_of, unreadable
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.frames import Frame

_Value = TypeVar("_Value")


def has_code(*codes: int) -> Callable[[Frame], bool]:
    """Return a function: whether an answer has one of these codes."""
    return lambda answer: answer.code in codes


succeeded = has_code(ResponseCode.SUCCESS)


@dataclass(frozen=True)
class ServerCall(Generic[_Value]):
    """A request to a server, and how its answer is read.

    Attributes:
        asked: What is requested, with its names, for errors.
        request: The request, without signature.
        read: Returns the value of an accepted answer. May raise one of the PARSE_ERRORS if the
            answer lacks something.
        accepts: Whether an answer is no error.
    """

    asked: str
    request: Frame
    read: Callable[[Frame], _Value]
    accepts: Callable[[Frame], bool] = succeeded

    def value(self, answer: Frame, place: str) -> _Value:
        """Return the value of an answer from the server `place`.

        Raises the error that the answer reports; UnsupportedError (PROTOCOL_BROKEN).
        """
        if not self.accepts(answer):
            raise error_of(answer, self.asked, place)
        try:
            return self.read(answer)
        except PARSE_ERRORS as error:
            raise unreadable(self.asked, place) from error


Ask = Callable[[Sequence[ServerCall[Any]]], list[Any]]
"""Makes calls at a server in one flight, and returns their values in the same order."""


def ask(
    server: ConnectionPool, calls: Sequence[ServerCall[_Value]], seconds: float
) -> list[_Value]:
    """Make calls at once, and return their values in the same order.

    Raises the first error that the server reports; TransportError, UnsupportedError.
    """
    answers = server.exchange([call.request for call in calls], seconds)
    return [call.value(answer, server.place) for call, answer in zip(calls, answers, strict=True)]


def table_of(answer: Frame) -> dict[str, Any]:
    """Return the object in the body of an answer; an empty body is an empty object."""
    table = loads(str(answer.body, "utf-8") or "{}")
    if not isinstance(table, dict):
        raise TypeError("not an object")
    return table


def queue_request(code: RequestCode, topic: str, queue_id: int, **more: object) -> Frame:
    """Return a request about a queue; all fields are sent as text."""
    fields = {name: str(value) for name, value in more.items()}
    return Frame(code, {"topic": topic, "queueId": str(queue_id), **fields})
