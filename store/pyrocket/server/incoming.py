"""`Incoming`: a call that a server has received, its client, and what it holds of the limits."""

import asyncio
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio

from pyrocket.broker.settings import Settings
from pyrocket.errors import BrokerBusyError, InvalidInputError, PyrocketError
from pyrocket.wire.errors import ErrorMetadata

Needed = tuple[str, str, str]
"""A right that a call needs: right, kind, and the name of the topic or group."""

Holders = tuple[str, ...]
"""A connection, and its user if the server has users."""


class Share:
    """Divides a total among the connections and users of a server. Used only on the event loop.

    A connection may hold as much as is free, up to a limit of its own; a user may hold as much as
    is free. So something is left for others, however many hold all they can.
    """

    def __init__(self, of_connection: int, in_total: int) -> None:
        self._of_connection, self._in_total = of_connection, in_total
        self._held: dict[str, int] = {}
        self.total = 0

    def fits(self, holders: Holders, amount: int) -> bool:
        """Whether a call may hold an amount, for its connection and its user.

        A connection that holds nothing may exceed its own limit, and also the total if that is 0.
        """
        free = self._in_total - self.total
        if self.total and amount > free:
            return False
        held = [self._held.get(holder, 0) for holder in holders]
        if held[0] and held[0] + amount > self._of_connection:
            return False
        return all(not amount_held or amount_held + amount <= free for amount_held in held)

    def held(self, holders: Holders) -> int:
        """Return what a connection holds."""
        return self._held.get(holders[0], 0)

    def add(self, holders: Holders, amount: int) -> None:
        """Hold an amount; a negative amount is given back."""
        self.total += amount
        for holder in holders:
            left = self._held.get(holder, 0) + amount
            if left:
                self._held[holder] = left
            else:
                self._held.pop(holder, None)


class Budget(Share):
    """Limits the bytes of requests and replies in memory."""

    def __init__(self, connection_bytes: int, total_bytes: int) -> None:
        super().__init__(connection_bytes, total_bytes)
        self._waiting: dict[str, deque[_Waiter]] = {}

    def add(self, holders: Holders, amount: int) -> None:
        """Hold bytes; a negative number is given back, and calls that wait may hold them."""
        super().add(holders, amount)
        if amount < 0 and self._waiting:
            self._grant()

    async def wait(self, holders: Holders, size: int) -> None:
        """Wait until bytes fit into the limits, and hold them; calls of a connection take turns."""
        if holders[0] not in self._waiting and self.fits(holders, size):
            self.add(holders, size)
            return
        waiter = _Waiter(holders, size)
        self._waiting.setdefault(holders[0], deque()).append(waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                self._grant()  # It may have been the first of its connection.
            else:
                self.add(holders, -size)
            raise

    def _grant(self) -> None:
        """Grant bytes to the calls that wait: connections take turns."""
        granted = True
        while granted:
            granted = False
            for connection, waiters in [*self._waiting.items()]:
                while waiters and waiters[0].granted.done():  # It has given up.
                    waiters.popleft()
                if waiters and self.fits(waiters[0].holders, waiters[0].size):
                    granted, waiter = True, waiters.popleft()
                    super().add(waiter.holders, waiter.size)
                    waiter.granted.set_result(None)
                    self._waiting[connection] = self._waiting.pop(connection)
                if not waiters:
                    del self._waiting[connection]


class _Waiter:
    """A call that waits for bytes."""

    def __init__(self, holders: Holders, size: int) -> None:
        self.holders, self.size = holders, size
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class CallOrigin(NamedTuple):
    """The address of a client, the metadata of its call, and its user.

    Read it in the event loop, before the handler of the call awaits anything: gRPC frees a call
    when its client gives up, and a thread that then asks for the peer ends the process.

    needed: The rights that the call has needed so far.
    user: Empty without credentials; None if the server has no users.
    """

    peer: str
    metadata: Sequence[tuple[str, str | bytes]]
    needed: set[Needed]
    user: str | None = None

    @classmethod
    def of(cls, context: Any) -> "CallOrigin":
        """Return the origin of a call, without its user."""
        return cls(context.peer(), context.invocation_metadata() or (), set())

    @property
    def holders(self) -> tuple[str, ...]:
        """Who holds what the call holds: its connection, and its user."""
        return (self.peer,) if self.user is None else (self.peer, f"user {self.user}")


ARRIVAL_S = 30
"""Time in which a request must arrive, including the wait for memory."""

TURNS, TURN_S = 2, 0.1
"""Connections that may receive a request at the same time while the memory is full, and the time in
which it must arrive: slow requests must not keep out those of other clients, which are small.
"""

IDLE_READS = 16
"""Calls of a connection that may wait for a further request without memory reserved for it."""

COPIES = 2
"""gRPC copies a reply."""

_SMALL_BYTES = 65_536
"""A reply of this size is sent even if the memory is full, because it may be that of a write."""

_MEMORY = "the requests and replies in memory", "total_bytes or connection_bytes"
_CALLS = "the open calls", "streams_per_client or parked_polls"
_WAITING = "the clients that wait for changes"


class CallLimits:
    """What the calls of a server share.

    Attributes:
        requests: The memory of requests, half of the total: replies that are not read must not
            keep requests from being received.
        turns: More memory, for connections that hold little while `requests` is full.
        replies: The memory of replies, the other half.
        calls: The number of open calls.
        parked: The number of calls that wait for changes. Half of the calls of a connection are
            left for acks and heartbeats, which must not wait.
        idle: The number of calls that wait for a further request.
        open: The open calls, and the tasks that handle them.
        handled: Bytes of requests and replies so far.
        stalled: Calls cancelled so far because the client stopped reading or sending.
        unread: Calls that have ended, whose replies gRPC keeps until the client reads or leaves.
    """

    def __init__(self, settings: Settings) -> None:
        streams, polls = settings.streams_per_client, settings.parked_polls
        self.settings = settings
        self.requests = Budget(settings.connection_bytes, settings.total_bytes // 2)
        self.turns = Budget(settings.request_bytes, TURNS * settings.request_bytes)
        self.replies = Budget(settings.connection_bytes, settings.total_bytes // 2)
        self.calls = Share(streams, 2 * polls)
        self.parked = Share(streams // 2 + 1, polls)
        self.idle = Share(IDLE_READS, polls)
        self.open: dict[Incoming, asyncio.Task[Any] | None] = {}
        self.handled = self.stalled = self.unread = 0

    def held(self) -> int:
        """Return the bytes of all requests and replies in memory."""
        return self.requests.total + self.turns.total + self.replies.total

    def cancel_late(self) -> None:
        """Cancel the calls whose client is too slow."""
        now = time.monotonic()
        for call, task in self.open.items():
            if call.due and call.due < now and task is not None:
                call.due, call.is_late = 0.0, True
                self.stalled += 1
                task.cancel()

    def cancel_refused(self, check: Callable[[CallOrigin], None]) -> None:
        """Cancel the calls for which `check` raises an error: their users lost a right."""
        for call, task in self.open.items():
            if task is not None and call.refusal is None:
                call.refusal = call.refused_by(check)
                if call.refusal is not None:
                    task.cancel()


class Incoming:
    """One call: who makes it, its requests and its replies. Used only on the event loop.

    What it holds is given back when the call has ended, after its last reply was sent.

    Attributes:
        due: The time at which the call is cancelled because its client is too slow; 0 for never.
        is_late: Whether it was cancelled for that reason, and the client does not know.
        refusal: Why it was cancelled, if its user lost the right to it.
        status: The name of the status that the client gets, for metrics.
    """

    def __init__(self, name: str, context: Any, limits: CallLimits) -> None:
        self.name, self.origin = name, CallOrigin.of(context)
        self._context, self._limits, self._settings = context, limits, limits.settings
        self._requests = self._replies = self._uploaded = 0
        self.due, self.is_late, self._is_counted = 0.0, False, False
        self.refusal: PyrocketError | None = None
        self.status = "OK"
        self._holders = self.origin.holders
        limits.open[self] = asyncio.current_task()
        context.add_done_callback(self._ended)

    def admit(self, user: str | None) -> None:
        """Count the call for its user until it has ended. Raises BrokerBusyError."""
        self.origin = self.origin._replace(user=user)
        self._holders = self.origin.holders
        _take(self._limits.calls, self._holders, 1, *_CALLS)
        self._is_counted = True

    def _ended(self, context: Any) -> None:
        limits = self._limits
        del limits.open[self]
        if self._is_counted:
            limits.calls.add(self._holders, -1)
        limits.handled += self._requests + self._replies
        self.release_requests()
        if self.is_late and self._replies:
            self._keep_replies()
        else:
            self.hold(0)

    def _keep_replies(self) -> None:
        """Hold the memory of replies that are not read until gRPC has freed the call.

        The call refers to this object by a callback, so both are freed together, in any thread.
        """
        limits, held = self._limits, (self._holders, self._replies)
        loop = asyncio.get_running_loop()
        limits.unread += 1

        def give_back() -> None:
            limits.unread -= 1
            limits.replies.add(held[0], -held[1])

        def freed() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(give_back)

        weakref.finalize(self, freed).atexit = False

    def refused_by(self, check: Callable[[CallOrigin], None]) -> PyrocketError | None:
        """Return the error that a check of the call raises, or None."""
        try:
            check(self.origin)
        except PyrocketError as error:
            return error
        return None

    def hold(self, size: int) -> None:
        """Hold this much memory for replies from now on, without waiting for it."""
        change, self._replies = size - self._replies, size
        if change:
            self._limits.replies.add(self._holders, change)

    async def reserve(self, size: int) -> None:
        """Hold this much more memory for replies, once it is free."""
        with self.within(self._settings.stream_stalled):
            await self._limits.replies.wait(self._holders, size)
        self._replies += size

    def release_requests(self) -> None:
        """Give back the memory of requests: the call keeps no reference to them."""
        self._hold_requests(0)

    def _hold_requests(self, size: int) -> None:
        change, self._requests = size - self._requests, size
        if change:
            self._limits.requests.add(self._holders, change)

    async def _reserve_requests(self, size: int) -> None:
        await self._limits.requests.wait(self._holders, size)
        self._requests += size

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Cancel the call if a `with` block takes too long."""
        self.due = time.monotonic() + seconds
        try:
            yield
        finally:
            self.due = 0.0

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Count the call as waiting for changes during a `with` block. Raises BrokerBusyError."""
        with self.counted(self._limits.parked, _WAITING):
            yield

    @contextmanager
    def counted(self, share: Share, what: str) -> Iterator[None]:
        """Count the call as one of a share during a `with` block. Raises BrokerBusyError."""
        _take(share, self._holders, 1, what, "parked_polls")
        try:
            yield
        finally:
            share.add(self._holders, -1)

    async def request(self) -> bytes:
        """Return the first request, once there is memory for it. Raises InvalidInputError."""
        most, requests = self._settings.request_bytes, self._limits.requests
        with self.within(ARRIVAL_S):
            if requests.fits(self._holders, most) or requests.held(self._holders) >= most:
                await self._reserve_requests(most)
                request = await self._read()
            else:
                request = await self._read_in_turn(most)
        if request is None:
            raise _cut_off(self.name)
        self._hold_requests(len(request))
        return request

    async def _read_in_turn(self, most: int) -> bytes | None:
        """Read a request that has arrived, or arrives soon. Raises BrokerBusyError."""
        turns, requests = self._limits.turns, self._limits.requests
        await turns.wait(self._holders, most)
        try:
            reading = asyncio.ensure_future(self._read())
            try:
                await asyncio.wait([reading], timeout=TURN_S)
                if not reading.done() and not requests.fits(self._holders, most):
                    raise _busy(*_MEMORY)
            except BaseException:
                reading.cancel()
                raise
            self._hold_requests(most)
        finally:
            turns.add(self._holders, -most)
        return await reading

    @contextmanager
    def staying(self) -> Iterator[None]:
        """Count the call as parked, and as one with `following` requests, for a `with` block.

        gRPC receives these without memory reserved for them, so few calls of a connection may stay.
        Raises BrokerBusyError.
        """
        with self.parked(), self.counted(self._limits.idle, _WAITING):
            try:
                yield
            finally:  # gRPC may have received a part of a request.
                self._limits.handled += self._settings.request_bytes

    async def following(self) -> AsyncIterator[bytes]:
        """Yield the further requests of a call that stays open for them, however long it takes."""
        while (request := await self._read()) is not None:
            self._hold_requests(len(request))
            yield request
            self._hold_requests(0)

    async def start_upload(self) -> None:
        """Reserve memory for the blocks of an upload, and for one block that arrives."""
        with self.within(ARRIVAL_S):
            await self._reserve_requests(2 * self._settings.request_bytes)

    async def block(self) -> bytes:
        """Return the next message of an upload. Raises InvalidInputError, BrokerBusyError."""
        with self.within(self._settings.stream_stalled):
            block = await self._read()
        if block is None:
            raise _cut_off(self.name)
        self._uploaded += len(block)
        excess = min(self._uploaded - self._settings.request_bytes, len(block))
        if excess > 0:
            _take(self._limits.requests, self._holders, excess, *_MEMORY)
            self._requests += excess
        if not block:  # The last one.
            self._hold_requests(self._uploaded)
        return block

    async def send(self, *replies: bytes) -> None:
        """Send replies of a stream; cancel the call if the client does not read each in time."""
        for reply in replies:
            self._limits.handled += len(reply)
            with self.within(self._settings.stream_stalled), connected():
                await self._context.write(reply)

    def reply(self, data: bytes) -> bytes:
        """Hold the memory of the only reply until it is sent. Raises BrokerBusyError."""
        size = COPIES * len(data)
        self._limits.handled += size
        if len(data) > _SMALL_BYTES and not self._limits.replies.fits(
            self._holders, size - self._replies
        ):
            raise _busy(*_MEMORY)
        self.hold(size)
        self.due = time.monotonic() + self._settings.stream_stalled
        return data

    async def abort(self, code: grpc.StatusCode, text: str, metadata: ErrorMetadata = ()) -> None:
        """End the call with a status. Always raises an exception."""
        self.status = code.name
        try:
            with connected():
                await self._context.abort(code, text, metadata)
        except grpc.aio.AbortError:
            self.is_late = False
            raise

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline of the client; None if it has none."""
        return self._context.time_remaining()

    async def _read(self) -> bytes | None:
        with connected():
            message = await self._context.read()
        if message is grpc.aio.EOF:
            return None
        self._limits.handled += len(message)
        return bytes(message)


@contextmanager
def connected() -> Iterator[None]:
    """Cancel the call if the client has gone while a request or a reply is transferred.

    gRPC cancels a call whose client has gone, except during a transfer: then the transfer fails.
    """
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:
        raise asyncio.CancelledError from None


def _take(share: Share, holders: Holders, amount: int, what: str, setting: str) -> None:
    if not share.fits(holders, amount):
        raise _busy(what, setting)
    share.add(holders, amount)


def _busy(what: str, setting: str) -> BrokerBusyError:
    return BrokerBusyError(
        f"{what} of the broker, of this connection or of this user have reached their limit.",
        remedy=f"Try again later, or raise the broker's setting {setting}.",
    )


def _cut_off(call: str) -> InvalidInputError:
    return InvalidInputError(
        f"the request of {call} ended before its last message: nothing was done.",
        remedy="Send a complete request; an upload ends with an empty message.",
        code="REQUEST_MALFORMED",
    )
