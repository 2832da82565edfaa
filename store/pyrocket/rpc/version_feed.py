"""Polls the version of a store once for all clients that watch it."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from pyrocket.broker.broker import Version

BUSY_S, IDLE_S = 0.01, 0.03
"""Seconds between two polls: after a recent change, and after a while without changes."""

_REST_AFTER_S = 1.0


class VersionFeed:
    """Polls for new versions while clients are waiting. Used by one event loop."""

    def __init__(self, look: Callable[[], Version]) -> None:
        self._look, self._latest = look, look()
        self._waiting: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def after(self, seen: Version | None) -> Version | None:
        """Return the first version that differs from `seen`; None once the feed is stopped."""
        if self._task is None or self._task.done():
            self._latest = self._look()
        while self._latest == seen and not self._stopped:
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._follow())
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
        return None if self._stopped else self._latest

    async def stop(self) -> None:
        """Wake all waiting clients, and stop polling."""
        self._stopped = True
        self._wake()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        changed = time.monotonic()
        while self._waiting:
            rests = time.monotonic() - changed > _REST_AFTER_S
            await asyncio.sleep(IDLE_S if rests else BUSY_S)
            try:
                latest = self._look()
            except Exception as error:
                self._fail(error)
                return
            if latest != self._latest:
                self._latest, changed = latest, time.monotonic()
                self._wake()

    def _fail(self, error: Exception) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
