"""Limits the memory for requests and replies, and detects callbacks that block the event loop."""

import asyncio
import selectors
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pyrocket.errors import BrokerBusyError

HELD_S = 0.02
"""Longest time that a callback should block the event loop."""


class Budget:
    """Limits the bytes of requests and replies in memory, for each connection and in total.

    Used only on the event loop. A request or reply that is larger than a limit is admitted when
    there is no other.
    """

    def __init__(self, connection_bytes: int, total_bytes: int) -> None:
        self._connection_bytes, self._total_bytes = connection_bytes, total_bytes
        self._held: Counter[str] = Counter()
        self._freed, self._waiting = asyncio.Condition(), 0
        self.total = self.passed = 0

    @asynccontextmanager
    async def hold(self, peer: str, size: int) -> AsyncIterator[None]:
        """Reserve the bytes of a request for a `with` block. Raises BrokerBusyError."""
        if not self._has_room(peer, size):
            raise BrokerBusyError(
                "the requests and replies in the broker's memory have reached their limit.",
                remedy="Try again later, or raise total_bytes or connection_bytes.",
            )
        self._take(peer, size)
        try:
            yield
        finally:
            await self._give(peer, size)

    @asynccontextmanager
    async def wait(self, peer: str, size: int) -> AsyncIterator[None]:
        """Wait until a reply fits into the limits, and reserve its bytes for a `with` block."""
        self._waiting += 1
        try:
            async with self._freed:
                await self._freed.wait_for(lambda: self._has_room(peer, size))
                self._take(peer, size)
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            await self._give(peer, size)

    def _has_room(self, peer: str, size: int) -> bool:
        of_peer, total = self._held[peer], self.total
        fits_peer = not of_peer or of_peer + size <= self._connection_bytes
        return fits_peer and (not total or total + size <= self._total_bytes)

    def _take(self, peer: str, size: int) -> None:
        self._held[peer] += size
        self.total += size
        self.passed += size

    async def _give(self, peer: str, size: int) -> None:
        self.total -= size
        self._held[peer] -= size
        if not self._held[peer]:
            del self._held[peer]
        if self._waiting:
            async with self._freed:
                self._freed.notify_all()


class LoopWatch(selectors.DefaultSelector):
    """An event loop's selector that counts how often callbacks blocked the loop for too long."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.longest_s, self._woke = 0, 0.0, time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events. The time since the last wait was spent in callbacks."""
        held = time.monotonic() - self._woke
        self.longest_s = max(self.longest_s, held)
        self.count += held > HELD_S
        found = super().select(timeout)
        self._woke = time.monotonic()
        return found
