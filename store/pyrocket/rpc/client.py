"""Calls of a broker. Channels do not survive a fork, so each process makes its own.

A call that a lost connection has interrupted is repeated, after a pause that doubles, until the
time of the call is over: `pyrocket.proto` says what makes a repeat of each call harmless.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import grpc

from pyrocket.errors import BrokerBusyError, PyrocketError, TransportError
from pyrocket.rpc.allocator import keep_blocks
from pyrocket.rpc.descriptors import message_class, service
from pyrocket.rpc.errors import carried_error
from pyrocket.rpc.messages import fill

SERVICE = "pyrocket.v1.Broker"
_ONCE = ("Append",)
"""Calls that append again when they are repeated; so a lost reply may leave rows twice."""

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 5.0
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
]

_LONG = frozenset(["Publish", "Flush", "Clean", "DeleteTopic"])
"""Calls that may take as long as all repeats together: how long depends on what is in the store."""

_Reply = TypeVar("_Reply")


class Connection:
    """The channel of this process to one address. Safe to share between threads."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._channel: Any = None
        self._pid = 0

    @property
    def channel(self) -> Any:
        """The channel, which connects when it is first used."""
        with self._lock:
            if self._channel is None or self._pid != os.getpid():
                keep_blocks()
                self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)
                self._pid = os.getpid()
            return self._channel

    def close(self) -> None:
        """Close the channel; a later call connects again."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None and self._pid == os.getpid():
            channel.close()


@dataclass(frozen=True)
class Timeouts:
    """Seconds: to connect, for one call, and for a call with all its repeats."""

    connect: float = 5
    call: float = 30
    total: float = 60


class Pauses:
    """The pauses between the repeats of one call, which end at a deadline."""

    def __init__(self, seconds: float) -> None:
        self._end, self._next = time.monotonic() + seconds, _FIRST_PAUSE_S

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self._end - time.monotonic(), 0)

    def wait(self) -> bool:
        """Pause before a repeat; return False, at once, if the deadline would pass."""
        seconds = self._next * random.uniform(0.5, 1.5)
        if seconds > self.left:
            return False
        time.sleep(seconds)
        self._next = min(2 * self._next, _LAST_PAUSE_S)
        return True


@dataclass(frozen=True)
class Client:
    """Calls one broker, each call within its time. Safe to share between threads."""

    connection: Connection
    timeouts: Timeouts = Timeouts()

    def within(self, seconds: float) -> "Client":
        """Return a client of the same connection whose calls end after so long at most."""
        return replace(self, timeouts=replace(self.timeouts, total=seconds))

    def pauses(self) -> Pauses:
        """Return the pauses of a call that is made now."""
        return Pauses(self.timeouts.total)

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Make a call with one reply, and return the message.

        Raises the error that the broker reports, and TransportError.
        """
        method, request, reply = _method(name)
        sent = fill(request(), arguments).SerializeToString()

        def once(seconds: float) -> Any:
            function = self.connection.channel.unary_unary(method)
            return reply.FromString(function(sent, timeout=seconds))

        return self._repeating(name, once)

    def stream(self, name: str, /, **arguments: Any) -> Iterator[bytes]:
        """Make a call with many replies, and yield each as bytes. Closing the iterator cancels it.

        Raises as `call`, but repeats nothing: the caller knows where to resume.
        """
        method, request, _ = _method(name)
        sent = fill(request(), arguments).SerializeToString()
        replies = self.connection.channel.unary_stream(method)(sent)
        try:
            yield from replies
        except grpc.RpcError as error:
            raise self._error(name, error) from None
        finally:
            replies.cancel()

    def close(self) -> None:
        """Close the connection, for all clients of it."""
        self.connection.close()

    def _repeating(self, name: str, once: Callable[[float], _Reply]) -> _Reply:
        pauses = self.pauses()
        while True:
            try:
                return once(pauses.left if name in _LONG else min(pauses.left, self.timeouts.call))
            except grpc.RpcError as error:  # noqa: PERF203 - the loop is for the errors
                if not _may_repeat(error) or not pauses.wait():
                    raise self._error(name, error) from None

    def _error(self, name: str, error: Any) -> PyrocketError:
        carried = carried_error(error)
        if carried is not None:
            return carried
        return TransportError(
            f"The broker at {self.connection.address} did not answer {name}:"
            f" {error.code().name}, {error.details()}.",
            remedy="Look whether it runs and can be reached: `pyrocket doctor --endpoint`.",
            repeat_is_safe=name not in _ONCE,
        )


def _may_repeat(error: Any) -> bool:
    """Whether a repeat may succeed: the connection was lost, or the broker has too much to do."""
    if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return isinstance(carried_error(error), BrokerBusyError)
    return bool(error.code() == grpc.StatusCode.UNAVAILABLE)


def _method(name: str) -> tuple[str, type[Any], type[Any]]:
    found = service(SERVICE).methods_by_name[name]
    request = message_class(found.input_type.full_name)
    return f"/{SERVICE}/{name}", request, message_class(found.output_type.full_name)
