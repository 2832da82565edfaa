"""Wakes pulls that wait for messages in a store of this machine, which any process may append."""

import asyncio
from dataclasses import dataclass, field

from pyrocket.store import Store, consumption_of
from pyrocket.values.message import MessageQueue

_LOOK_S = 0.01
"""While pulls wait: interval of the checks whether the store has changed."""


@dataclass(eq=False)
class _Waiting:
    queue: MessageQueue
    offset: int
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Arrivals:
    """The pulls of one event loop that wait for messages."""

    def __init__(self, store: Store) -> None:
        self._store, self._storage = store, consumption_of(store)
        self._waiting: set[_Waiting] = set()
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, queue: MessageQueue, offset: int, seconds: float) -> None:
        """Return when a queue has a message at this offset or a later one, or after the time."""
        one = _Waiting(queue, offset)
        self._waiting.add(one)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        # Before Python 3.12, `asyncio.wait_for` may ignore a cancellation.
        timer = asyncio.get_running_loop().call_later(seconds, one.arrived.set)
        try:
            await one.arrived.wait()
        finally:
            timer.cancel()
            self._waiting.discard(one)

    async def _look(self) -> None:
        """Wake the pulls whose messages have arrived, as long as any pull waits."""
        loop, seen, known = asyncio.get_running_loop(), None, set[_Waiting]()
        while self._waiting:
            now = self._store.position()
            if now != seen or not self._waiting <= known:
                seen, known = now, {*self._waiting}
                try:
                    arrived = await loop.run_in_executor(None, self._arrived, known)
                except Exception:  # The pulls meet the error again, and report it.
                    arrived = [*known]
                for one in arrived:
                    one.arrived.set()
            await asyncio.sleep(_LOOK_S)

    def _arrived(self, waiting: set[_Waiting]) -> list[_Waiting]:
        return [one for one in waiting if self._maximum(one.queue) > one.offset]

    def _maximum(self, queue: MessageQueue) -> int:
        return self._storage.bounds(queue.topic, queue.queue_id).maximum
