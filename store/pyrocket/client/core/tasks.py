"""The tasks of a client in its event loop, and calls with a limit of time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from pyrocket.base.failures import Failures, attempt
from pyrocket.errors import TransportError

_T = TypeVar("_T")


class Tasks:
    """The tasks of one client, until they are cancelled. Used by one event loop."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def repeat(
        self,
        what: str,
        work: Callable[[], Awaitable[object]],
        *,
        every_s: float,
        wake: asyncio.Event | None = None,
    ) -> None:
        """Do work every `every_s` seconds, and with `wake` also when this event is set.

        what: The effect of an error, which is logged and counted.
        """

        async def run() -> None:
            woken = asyncio.Event() if wake is None else wake
            while True:
                # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
                timer = asyncio.get_running_loop().call_later(every_s, woken.set)
                try:
                    await woken.wait()
                finally:
                    timer.cancel()
                woken.clear()
                await attempt(self._failures, what, work())

        self.start(run())

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in [*self._tasks]:
            task.cancel()


class SideBySide:
    """Work at several brokers: a broker that does not answer delays only its own work.

    Used by one event loop.
    """

    def __init__(self, tasks: Tasks, late: Callable[[], None] = lambda: None) -> None:
        """`late` is called when work has ended for which `run` did not wait."""
        self._tasks, self._late = tasks, late
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(
        self,
        brokers: set[str],
        work: Callable[[str], Coroutine[Any, Any, None]],
        *,
        patience_s: float,
    ) -> None:
        """Do work for each broker, and wait for `patience_s` at most.

        A broker at which earlier work is not finished is omitted. `work` handles its errors.
        """
        started = [self._start(broker, work) for broker in sorted(brokers - self._running.keys())]
        if started:
            _, late = await asyncio.wait(started, timeout=patience_s)
            for task in late:
                task.add_done_callback(lambda done: self._late())

    async def one_ended(self) -> bool:
        """Wait until work at one broker has ended; return False if there is none."""
        running = [*self._running.values()]
        if running:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return bool(running)

    def _start(
        self, broker: str, work: Callable[[str], Coroutine[Any, Any, None]]
    ) -> "asyncio.Task[None]":
        self._running[broker] = task = self._tasks.start(work(broker))
        task.add_done_callback(lambda done: self._running.pop(broker))
        return task


async def within(seconds: float, call: Coroutine[Any, Any, _T]) -> _T:
    """Make a call, and raise TransportError if it takes longer."""
    task = asyncio.ensure_future(call)
    try:
        # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise TransportError(
        f"there was no answer within {seconds:g} s.",
        remedy="Check that the broker runs; the call is repeated.",
        repeat_is_safe=True,
    )
