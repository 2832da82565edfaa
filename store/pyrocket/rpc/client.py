"""A connection to a broker, one per process and target.

A call that a lost connection has interrupted is repeated, after a pause that doubles, until the
time of the call is over. Every call of this interface can be repeated: see settled promises of each
in `pyrocket.proto`. Channels do not survive a fork, so each process makes its own.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from pyrocket.errors import PyrocketError, StoreUnavailableError
from pyrocket.rpc.descriptors import message_class, service
from pyrocket.rpc.errors import carried_error
from pyrocket.rpc.messages import fill

SERVICE = "pyrocket.v1.Broker"
_REPEATED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 5.0
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
]

_Reply = TypeVar("_Reply")


@dataclass(frozen=True)
class Timeouts:
    """Seconds: to connect, for one call, and for a call with all its repeats."""

    connect: float = 5
    call: float = 30
    total: float = 60


class Client:
    """Calls one broker. Safe to share between threads."""

    def __init__(self, address: str, timeouts: Timeouts = Timeouts()) -> None:
        self.address, self._timeouts = address, timeouts
        self._pid, self._lock = 0, threading.Lock()
        self._channel: grpc.Channel | None = None

    def call(self, name: str, **arguments: Any) -> Any:
        """Make a call with one reply, and return the message."""
        method, request, reply = _method(name)
        sent = fill(request(), arguments).SerializeToString()

        def once(seconds: float) -> Any:
            return reply.FromString(self._open().unary_unary(method)(sent, timeout=seconds))

        return self._repeating(name, once)

    def stream(self, name: str, **arguments: Any) -> Iterator[bytes]:
        """Make a call with many replies, and yield each as bytes. Closing the iterator cancels it.

        Not repeated: the caller knows where to go on. Raises as `call`.
        """
        method, request, _ = _method(name)
        sent = fill(request(), arguments).SerializeToString()
        replies = self._open().unary_stream(method)(sent)
        try:
            yield from replies
        except grpc.RpcError as error:
            raise self._error(name, error) from None
        finally:
            replies.cancel()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _open(self) -> grpc.Channel:
        with self._lock:
            if self._channel is None or self._pid != os.getpid():
                self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)
                self._pid = os.getpid()
            return self._channel

    def _repeating(self, name: str, once: Callable[[float], _Reply]) -> _Reply:
        end, pause = time.monotonic() + self._timeouts.total, _FIRST_PAUSE_S
        while True:
            left = end - time.monotonic()
            try:
                return once(min(left, self._timeouts.call))
            except grpc.RpcError as error:
                wait = pause * random.uniform(0.5, 1.5)
                if error.code() not in _REPEATED or time.monotonic() + wait > end:
                    raise self._error(name, error) from None
                time.sleep(wait)
                pause = min(2 * pause, _LAST_PAUSE_S)

    def _error(self, name: str, error: grpc.RpcError) -> PyrocketError:
        carried = carried_error(error)
        if carried is not None:
            return carried
        return StoreUnavailableError(
            f"The broker at {self.address} did not answer {name}: {error.code().name},"
            f" {error.details()}.",
            remedy="Look whether it runs and can be reached: `pyrocket doctor --endpoint`.",
            code="ENDPOINT_UNREACHABLE",
        )


def _method(name: str) -> tuple[str, type[Any], type[Any]]:
    found = service(SERVICE).methods_by_name[name]
    request = message_class(found.input_type.full_name)
    return f"/{SERVICE}/{name}", request, message_class(found.output_type.full_name)
