"""Limits what connections and users can hold, and detects callbacks that block the event loop."""

import asyncio
import selectors
import time
from collections import deque

Holders = tuple[str, ...]
"""A connection, and its user if the server has users."""

HELD_S = 0.02
"""Longest time that a callback should block the event loop."""


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
        return all(not one or one + amount <= free for one in held)

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
