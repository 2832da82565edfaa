"""The threads that run the work of calls.

Each kind of work has its own threads, so that one kind does not wait for another. For example,
while a receive scans many messages of a queue, the acks of its group wait, but sends do not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

_THREADS = 8

_Value = TypeVar("_Value")


class Work(Enum):
    """The kind of work of a call.

    READ: Reads.
    SEND: Encodes the messages of a request. Its only thread, for which requests wait in a queue, is
        faster than several: switching between threads takes longer than encoding a message.
    WRITE: May wait for the write lock or the disk.
    RECEIVE: Delivers messages to a group.
    CHANGE: Changes the state of a group or a client; may wait for a receive of the group.
    """

    READ = "read"
    SEND = "send"
    WRITE = "write"
    RECEIVE = "receive"
    CHANGE = "change"


@dataclass(frozen=True)
class PendingReply:
    """A reply that depends on an append.

    `reply` creates the reply from the value of `result`, without blocking.
    """

    result: "Future[Any]"
    reply: Callable[[Any], Any]


class Threads:
    """A thread pool for each kind of work. Used by one event loop."""

    def __init__(self, read_threads: int) -> None:
        counts = dict.fromkeys(Work, _THREADS) | {Work.READ: read_threads, Work.SEND: 1}
        self._pools = {
            kind: ThreadPoolExecutor(count, f"pyrocket-{kind.value}")
            for kind, count in counts.items()
        }

    def run(self, work: Callable[[], _Value], kind: Work) -> Awaitable[_Value]:
        """Run work in a thread for its kind; if it returns a `PendingReply`, await that reply.

        The event loop is woken only once for each call: a wake-up takes longer than most work.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[_Value] = loop.create_future()
        self._pools[kind].submit(_Job(work, loop, reply).run)
        return reply

    def shutdown(self) -> None:
        """Wait until all work is done."""
        for pool in self._pools.values():
            pool.shutdown()


class _Job:
    """Runs work in a thread, and sets the result of a future of the event loop."""

    def __init__(
        self,
        work: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        reply: "asyncio.Future[Any]",
    ) -> None:
        self._work, self._loop, self._reply = work, loop, reply

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

        with suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(resolve_unless_cancelled)
