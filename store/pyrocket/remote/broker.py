"""`RemoteBroker`: one broker's address, and calls to it in an event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from pyrocket.base.credentials import Credentials
from pyrocket.base.versions import PROTOCOL, RELEASE
from pyrocket.errors import PyrocketError
from pyrocket.remote.connection import check_protocol, is_silent, unreachable
from pyrocket.values.source import Hello
from pyrocket.wire.channel import CLIENTS, ONCE, SERVICE, method_of, open_channel
from pyrocket.wire.errors import carried_error
from pyrocket.wire.messages import fill, value_of
from pyrocket.wire.tls_errors import date_remedy

CALL_S = 30

_MAX_CALLS = 50
"""Maximum concurrent calls of one connection; brokers refuse more than 100 by default."""


class RemoteBroker:
    """Calls one address. Created and used in one event loop; connects when it is first used.

    Calls that wait at the broker, as pulls do, have connections of their own, so that they do not
    delay other calls.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.address, self._credentials = address, credentials
        self._channel, self._calls = self._open(), asyncio.Semaphore(_MAX_CALLS)
        self._waiting: dict[Any, int] = {}
        self._closing: dict[Any, asyncio.Task[None]] = {}

    def _open(self) -> Any:
        return open_channel(self._credentials, self.address, grpc.aio)

    async def hello(self, seconds: float) -> Hello:
        """Make the first call. Raises UnsupportedError (PROTOCOL_UNKNOWN) if this is no broker."""
        reply = await self.call("Hello", SERVICE, seconds, release=RELEASE, protocol=PROTOCOL)
        hello = value_of(reply, Hello)
        check_protocol(hello, self.address)
        return hello

    async def call(
        self, name: str, of: str = CLIENTS, seconds: float = CALL_S, /, **arguments: Any
    ) -> Any:
        """Make a call with one reply. Raises the broker's error, and TransportError."""
        async with self._calls:
            return await self._call(self._channel, name, of, seconds, arguments)

    async def call_and_wait(self, name: str, seconds: float, /, **arguments: Any) -> Any:
        """Make a call that the broker may answer late; see `call`."""
        with self._waiting_channel() as channel:
            return await self._call(channel, name, CLIENTS, seconds, arguments)

    async def _call(
        self, channel: Any, name: str, of: str, seconds: float, arguments: Mapping[str, Any]
    ) -> Any:
        method, request, reply = method_of(name, of)
        sent = fill(request(), arguments).SerializeToString()
        metadata = self._credentials.metadata()
        try:
            data = await channel.unary_unary(method)(sent, timeout=seconds, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if is_silent(error):
                self._drop(channel)
            raise await self._error(name, error) from None
        return reply.FromString(data)

    def _drop(self, channel: Any) -> None:
        """Use the channel for no further calls; close it when they have had the time to end."""
        if channel is self._channel:
            self._channel = self._open()
        elif self._waiting.pop(channel, None) is None:
            return
        self._closing[channel] = closing = asyncio.ensure_future(_close_later(channel))
        closing.add_done_callback(lambda _: self._closing.pop(channel))

    @contextmanager
    def _waiting_channel(self) -> Iterator[Any]:
        """Count a call on a channel that has room for it."""
        free = (channel for channel, calls in self._waiting.items() if calls < _MAX_CALLS)
        channel = next(free, None) or self._open()
        self._waiting[channel] = self._waiting.get(channel, 0) + 1
        try:
            yield channel
        finally:
            if channel in self._waiting:
                self._waiting[channel] -= 1

    async def stream(self, name: str, /, **arguments: Any) -> AsyncIterator[Any]:
        """Make a call with many replies. Closing the iterator cancels it. Raises as `call` does."""
        method, request, reply = method_of(name, CLIENTS)
        sent = fill(request(), arguments).SerializeToString()
        metadata = self._credentials.metadata()
        with self._waiting_channel() as channel:
            replies = channel.unary_stream(method)(sent, metadata=metadata)
            try:
                async for data in replies:
                    yield reply.FromString(data)
            except grpc.aio.AioRpcError as error:
                raise await self._error(name, error) from None
            finally:
                replies.cancel()

    async def close(self) -> None:
        """Close all connections."""
        for closing in self._closing.values():
            closing.cancel()
        for channel in (self._channel, *self._waiting, *self._closing):
            await channel.close()

    async def _error(self, name: str, error: Any) -> PyrocketError:
        if (carried := carried_error(error, self.address)) is not None:
            return carried
        trusted, is_safe = self._credentials.ca, name not in ONCE
        dates = await asyncio.to_thread(date_remedy, error, self.address, trusted)
        return unreachable(f"at {self.address}", name, error, repeat_is_safe=is_safe, dates=dates)


async def _close_later(channel: Any) -> None:
    # A cancelled `close` with a grace period would leave the channel open for ever.
    await asyncio.sleep(CALL_S)
    await channel.close()
