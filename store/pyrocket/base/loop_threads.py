"""Threads that work for an event loop, and wake it at most once for many results."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class PendingReply:
    """A reply that depends on an append.

    `reply` creates the reply from the value of `result`, without blocking.
    """

    result: "Future[Any]"
    reply: Callable[[Any], Any]


class LoopThreads:
    """A pool of threads. Used by one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._posts: _Posts | None = None

    def run(self, work: Callable[[], _Value]) -> Awaitable[_Value]:
        """Run work in a thread; if it returns a `PendingReply`, await that reply.

        The event loop is woken at most once for each call: a wake-up takes longer than most work.
        """
        loop = asyncio.get_running_loop()
        if self._posts is None:
            self._posts = _Posts(loop)
        reply: asyncio.Future[_Value] = loop.create_future()
        self._pool.submit(_Job(work, self._posts, reply).run)
        return reply

    def shutdown(self, *, wait: bool = True) -> None:
        """Start no more work; with `wait`, return when all work is done."""
        self._pool.shutdown(wait)


class _Posts:
    """Runs callbacks of threads in the event loop; one wake-up runs all callbacks until then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def post(self, callback: Callable[[], None]) -> None:
        """Run a callback in the event loop. Called by threads."""
        self._callbacks.append(callback)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._run_all)

    def _run_all(self) -> None:
        # Callbacks posted from now on wake the loop again.
        self._is_woken = False
        try:
            for _ in range(len(self._callbacks)):
                self._callbacks.popleft()()
        finally:
            if self._callbacks:
                self._loop.call_soon(self._run_all)


class _Job:
    """Runs work in a thread, and sets the result of a future of the event loop."""

    def __init__(
        self, work: Callable[[], Any], posts: _Posts, reply: "asyncio.Future[Any]"
    ) -> None:
        self._work, self._posts, self._reply = work, posts, reply

    def run(self) -> None:
        if self._reply.cancelled():
            return
        try:
            value = self._work()
        except BaseException as error:
            self._post(self._reply.set_exception, error)
        else:
            if isinstance(value, PendingReply):
                value.result.add_done_callback(lambda done: self._post(self._finish, value, done))
            else:
                self._post(self._reply.set_result, value)

    def _finish(self, pending: PendingReply, done: "Future[Any]") -> None:
        try:
            self._reply.set_result(pending.reply(done.result()))
        except Exception as error:
            self._reply.set_exception(error)

    def _post(self, resolve: Callable[..., None], *arguments: Any) -> None:
        def resolve_unless_cancelled() -> None:
            if not self._reply.cancelled():
                resolve(*arguments)

        self._posts.post(resolve_unless_cancelled)
