"""Parks calls that wait for messages, and repeats their receive or pull when they are woken."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from pyrocket.broker.broker import Broker
from pyrocket.broker.polls import ParkedPoll
from pyrocket.server.messaging.codes import RefusedError
from pyrocket.server.messaging.sessions import ClientSession


class Found(Protocol):
    """The result of a receive or pull."""

    @property
    def messages(self) -> Sequence[Any]:
        """Messages for the client."""

    @property
    def has_more(self) -> bool:
        """Whether some messages were not examined, so that the caller must repeat at once."""


_Found = TypeVar("_Found", bound=Found)

_REPLY_S = 0.1
"""How long before its deadline a call is answered."""

_LEAST_S = 1.0


def deadline_of(left_s: float | None, wait_ms: int | None, max_s: float) -> float:
    """Return the time, on the event loop's clock, until which a call may wait.

    left_s: The seconds until the call's deadline; None if it has none.
    wait_ms: The wait that the client requests; None to wait until the call's deadline. Raises
    RefusedError (ILLEGAL_POLLING_TIME) if less than a second is left and the client requests more.
    """
    now = asyncio.get_running_loop().time()
    left_s = max_s + _REPLY_S if left_s is None else left_s
    wait_s = left_s if wait_ms is None else wait_ms / 1000
    if left_s < min(wait_s, _LEAST_S):
        raise RefusedError(
            "ILLEGAL_POLLING_TIME", f"the deadline is in {left_s:.1f} s, too soon to poll."
        )
    return now + min(wait_s, max_s, left_s - _REPLY_S)


async def wait_for_messages(
    broker: Broker,
    place: tuple[str, str, int | None],
    session: ClientSession,
    deadline: float,
    look: Callable[[], Awaitable[_Found]],
) -> _Found:
    """Repeat `look` until it returns messages or the deadline passes; return its last result.

    place: Group, topic and queue id; the queue id None means all queues. The wait ends early if
    the client disconnects.

    Of the polls on all queues, a message wakes one (`Holds`). Therefore a poll that was woken
    wakes the next one if it finds messages, or if it ends before it has looked for them.
    """
    loop = asyncio.get_running_loop()

    def is_over() -> bool:
        return loop.time() >= deadline or session.ended

    async def look_on() -> _Found:
        reply = await look()
        while not reply.messages and reply.has_more and not is_over():
            reply = await look()
        return reply

    reply, wakes_next = await look_on(), False
    try:
        while not reply.messages and not is_over():
            woken = asyncio.Event()
            wake = _waker(loop, woken)
            hold = ParkedPoll(*place, wake)
            holds = broker.polls.holds
            holds.park(hold)
            session.polls.add(wake)
            try:
                reply = await look_on()  # Messages may have arrived before the call was parked.
                wakes_next = wakes_next and bool(reply.messages)
                if not reply.messages and not session.ended:
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(woken.wait(), deadline - loop.time())
            finally:
                was_woken = not holds.remove(hold)
                wakes_next = wakes_next or was_woken
                session.polls.discard(wake)
    finally:
        group, topic, queue_id = place
        if wakes_next and queue_id is None:
            broker.polls.visible_in(group, topic, 0)
    return reply


def _waker(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> Callable[[], None]:
    """Return a function with which any thread can set the event."""

    def wake() -> None:
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(woken.set)

    return wake
