"""Reads the version of a store once after each change, for all clients that watch it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

INTERVAL_S = 0.01
"""Minimum time between two reads; changes in between are announced together."""


class VersionFeed:
    """Announces new versions to waiting clients. Created and used by one event loop."""

    def __init__(self, look: Callable[[], Any], interval_s: float = INTERVAL_S) -> None:
        self._look, self._latest, self._interval_s = look, look(), interval_s
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._next: asyncio.TimerHandle | None = None
        self._not_before = 0.0
        self._stale = self._stopped = False

    def changed(self) -> None:
        """Announce that the version may have changed. Cheap, and safe to call from any thread."""
        if not self._stale and not self._stopped:
            self._stale = True
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._schedule)

    async def after(self, seen: Any) -> Any:
        """Return the first version that differs from `seen`; None once the feed is stopped."""
        if self._stale and not self._waiting and self._loop.time() >= self._not_before:
            self._update()
        while self._latest == seen and not self._stopped:
            waiter = self._loop.create_future()
            self._waiting.add(waiter)
            if self._stale:
                self._schedule()
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
        return None if self._stopped else self._latest

    def stop(self) -> None:
        """Wake all waiting clients, and ignore later changes."""
        self._stopped = True
        if self._next is not None:
            self._next.cancel()
        self._wake()

    def _schedule(self) -> None:
        # Without waiting clients, the version is not read until a client arrives.
        if self._waiting and self._next is None and not self._stopped:
            self._next = self._loop.call_at(self._not_before, self._update)

    def _update(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._not_before = self._loop.time() + self._interval_s
        self._stale = False  # Reset first, so that a change during the read causes another read.
        try:
            latest = self._look()
        except Exception as error:
            self._stale = True
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        if latest != self._latest:
            self._latest = latest
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
