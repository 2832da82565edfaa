"""Calls a broker, and repeats calls that a lost connection has interrupted.

The pause before a repeat doubles each time, until the timeout of the call. `pyrocket.proto`
documents for each call why repeating it is harmless. Channels do not survive a fork, so each
process opens its own.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_type_hints

import grpc

from pyrocket.base.clock import LAST_S, Pauses
from pyrocket.errors import BrokerBusyError, PyrocketError, TransportError
from pyrocket.remote.connection import Connection, is_distrusted, is_silent, unreachable
from pyrocket.wire.channel import ONCE, SERVICE, method_of
from pyrocket.wire.errors import carried_error
from pyrocket.wire.messages import fill, value_of
from pyrocket.wire.tls_errors import tls_mismatch

_LONG = frozenset(["Publish", "Flush", "Clean", "DeleteTopic"])
"""Calls limited only by the total timeout, because their duration depends on the store's size."""

_Reply = TypeVar("_Reply")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[Concatenate[Any, _P], _R]


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds: to connect, for one attempt, and for a call with all its repeats.

    Attributes:
        first: Replaces `total` until the broker has answered once, so that a wrong address is
            reported soon.
    """

    connect: float = 5
    call: float = 30
    total: float = 60
    first: float = 8


@dataclass(frozen=True)
class Client:
    """Calls one broker, each call within its timeout. Safe to share between threads."""

    connection: Connection
    timeouts: Timeouts = Timeouts()

    def within(self, seconds: float) -> "Client":
        """Return a client on the same connection whose calls have this total timeout."""
        return replace(self, timeouts=replace(self.timeouts, total=seconds))

    def pauses(self) -> Pauses:
        """Return the pauses of a call that starts now; short ones for a broker that may move."""
        seconds = self.timeouts.total if self._waits else self.timeouts.first
        return Pauses(seconds, last=0.5 if self.connection.find else LAST_S)

    @property
    def _waits(self) -> bool:
        """Whether to wait for an unreachable broker: only if the broker has answered before, or if
        `first` is not shorter than `total`.
        """
        times = self.timeouts
        return self.connection.was_greeted or times.first >= times.total

    def call(
        self,
        name: str,
        of: str = SERVICE,
        /,
        records: Iterable[bytes] | None = None,
        **arguments: Any,
    ) -> Any:
        """Make a call with one reply, and return the reply.

        of: The service.
        records: Yields blocks that are sent after the request as they are produced.

        Raises the error that the broker reports, and TransportError.
        """
        method, request, reply = method_of(name, of)
        sent = fill(request(), arguments).SerializeToString()
        blocks = None if records is None else _Blocks(records)

        def once(channel: Any, seconds: float) -> Any:
            how = {"timeout": seconds, "metadata": self.connection.metadata}
            if blocks is None:
                return reply.FromString(channel.unary_unary(method)(sent, **how))
            return reply.FromString(blocks.send(channel.stream_unary(method), sent, how))

        return self._repeating(name, once)

    def stream(self, name: str, /, **arguments: Any) -> Iterator[bytes]:
        """Make a call with many replies, and yield each reply as bytes.

        Closing the iterator cancels the call. Raises the same errors as `call`. The call is not
        repeated; the caller has to resume it.
        """
        method, request, _ = method_of(name)
        sent = fill(request(), arguments).SerializeToString()
        connection, replies = self.connection, None
        channel = connection.channel
        try:
            channel = connection.greeted(self.timeouts.connect, waits=self._waits)
            replies = channel.unary_stream(method)(sent, metadata=connection.metadata)
            yield from replies
        except (grpc.RpcError, TransportError) as error:
            failure = self._error(name, error)
            self._moved(channel, error)
            raise failure from None
        finally:
            if replies is not None:
                replies.cancel()

    def close(self) -> None:
        """Close the connection for all clients that share it."""
        self.connection.close()

    def _repeating(self, name: str, once: Callable[[Any, float], _Reply]) -> _Reply:
        pauses = self.pauses()
        failure: PyrocketError | None = None
        while True:
            channel = self.connection.channel
            try:
                # An address that does not answer leaves time for the ones after it.
                seconds = min(pauses.left / self.connection.left, self.timeouts.connect)
                # The first attempt does not wait, because a wait that ends has no reason.
                waits = self._waits and failure is not None
                channel = self.connection.greeted(seconds, waits=waits)
                longest = pauses.left if name in _LONG else self.timeouts.call
                return once(channel, min(pauses.left, longest))
            except (grpc.RpcError, TransportError) as error:
                if failure is None or not isinstance(error, TransportError):
                    failure = self._error(name, error)
                repeats = _may_repeat(error) or (_is_silent(error) and name not in ONCE)
                if repeats and not self.connection.was_greeted:
                    mismatch = tls_mismatch(error, self.connection.place, self.connection.address)
                    repeats, failure = mismatch is None, mismatch or failure
                moved = self._moved(channel, error)
                if not repeats or not (moved or pauses.wait()):
                    raise failure from None

    def _moved(self, channel: Any, error: Any) -> bool:
        """After a call has failed, switch to another address or channel if that may help."""
        silent = _is_silent(error)
        return (silent or _may_repeat(error)) and self.connection.try_next(channel, silent=silent)

    def _error(self, name: str, error: Any) -> PyrocketError:
        if isinstance(error, PyrocketError):
            return error
        if (carried := carried_error(error, self.connection.address)) is not None:
            return carried
        dates, place = self.connection.date_remedy(error), self.connection.place
        return unreachable(place, name, error, repeat_is_safe=name not in ONCE, dates=dates)


class _Blocks:
    """Sends each block of a request while the next one is produced, and keeps all for a repeat."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._kept: list[bytes] = []
        self._left = iter(blocks)

    def send(self, function: Any, head: bytes, how: Mapping[str, Any]) -> bytes:
        """Send `head` and the blocks, and return the reply. Raises grpc.RpcError."""
        sending: SimpleQueue[bytes | None] = SimpleQueue()
        call = function.future(iter(sending.get, None), **how)
        try:
            for message in (head, *self._kept):
                sending.put(message)
            for block in self._left:
                self._kept.append(block)
                sending.put(block)
            sending.put(b"")
        except BaseException:
            call.cancel()
            raise
        finally:
            sending.put(None)
        return call.result()


def _is_silent(error: Any) -> bool:
    """Whether a call, or the first call of its channel, got no answer within its time."""
    return isinstance(error, TransportError) or (is_silent(error) and not carried_error(error, ""))


def _may_repeat(error: Any) -> bool:
    """Whether a repeat may succeed: the connection was lost, or the broker is overloaded.

    A repeat cannot succeed if the broker's certificate is not trusted.
    """
    if isinstance(error, TransportError):
        return error.repeat_is_safe
    if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return isinstance(carried_error(error, ""), BrokerBusyError)
    is_lost = error.code() == grpc.StatusCode.UNAVAILABLE or _was_cancelled(error)
    return is_lost and not is_distrusted(error)


def _was_cancelled(error: Any) -> bool:
    """Whether the broker has cancelled the call because it is shutting down.

    Calls on a channel that this process has closed have the same code, but other details.
    """
    return error.code() == grpc.StatusCode.CANCELLED and error.details() != "Channel closed!"


class RemoteMethod(Generic[_P, _R]):
    """A method of an object with a `client`, which makes a call with one reply.

    The arguments are the fields of the request. The reply is converted to the type that the method
    returns.
    """

    def __init__(self, call: str, method: "_Method[_P, _R]") -> None:
        self._call, self._method = call, method
        self._signature = inspect.signature(method)

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[_P, _R]:
        """Return the method of an object; for a class, the method that it was made from."""
        return partial(self._of, instance) if instance else cast("Callable[_P, _R]", self._method)

    @cached_property
    def _kind(self) -> Any:
        return get_type_hints(self._method)["return"]

    def _of(self, instance: Any, *given: Any, **named: Any) -> Any:
        bound = self._signature.bind(instance, *given, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        client: Client = instance.client
        return value_of(client.call(self._call, **dict(arguments)), self._kind)


def remote(call: str) -> Callable[["_Method[_P, _R]"], RemoteMethod[_P, _R]]:
    """Return a decorator that makes a method call the broker; its body is not executed."""
    return partial(RemoteMethod, call)
