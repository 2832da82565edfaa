"""Renews the invisible time of messages automatically while their client is connected.

Source: `DefaultReceiptHandleManager`, `RenewStrategyPolicy` of RocketMQ's proxy.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from pyrocket.broker.pop.pop import Pop

FIRST_MS = 60_000
_STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
_AHEAD_S, _LONGEST_S = 10, 3 * 3600
RELEASED_MS = 1000
"""Time after which a message becomes visible if its client has disconnected."""


@dataclass
class Renewal:
    """A message in flight with automatic renewal. Times are monotonic seconds."""

    group: str
    topic: str
    handle: str
    attempt: int
    client: Hashable
    began: float
    until: float
    renewed: int = 0


class Renewals:
    """The messages with automatic renewal. Safe to share between threads."""

    def __init__(self, pop: Pop, lives: Callable[[Hashable], bool]) -> None:
        self._pop, self._lives = pop, lives
        self._lock = threading.Lock()
        self._by_handle: dict[str, Renewal] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def add(
        self, group: str, topic: str, client: Hashable, handles: Sequence[tuple[str, int]]
    ) -> None:
        """Start renewing messages, given by receipt handle and attempt."""
        now = time.monotonic()
        until = now + FIRST_MS / 1000
        with self._lock:
            for handle, attempt in handles:
                self._by_handle[handle] = Renewal(group, topic, handle, attempt, client, now, until)

    def remove(self, handles: Iterable[str]) -> None:
        """Stop renewing messages: they were acked, or their client set an invisible time."""
        with self._lock:
            for handle in handles:
                self._by_handle.pop(handle, None)

    def attempt(self, handle: str) -> int:
        """Return the attempt of a message; 0 if it is not renewed."""
        found = self._by_handle.get(handle)
        return found.attempt if found else 0

    def release(self, client: Hashable) -> None:
        """Make the messages of a disconnected client visible soon."""
        with self._lock:
            found = [one for one in self._by_handle.values() if one.client == client]
        self._release(found)

    def renew(self) -> None:
        """Renew the messages that are due. After a BrokerBusyError the next call continues."""
        now = time.monotonic()
        with self._lock:
            due = [one for one in self._by_handle.values() if one.until - now < _AHEAD_S]
        for one in due:
            if now - one.began >= _LONGEST_S or not self._lives(one.client):
                self._release([one])
                continue
            step = _STEPS_MS[min(one.renewed, len(_STEPS_MS) - 1)]
            if self._extend(one, step):
                one.until, one.renewed = now + step / 1000, one.renewed + 1

    def _release(self, renewals: Iterable[Renewal]) -> None:
        for one in renewals:
            self._extend(one, RELEASED_MS)
            self.remove([one.handle])

    def _extend(self, one: Renewal, ms: int) -> bool:
        (valid,) = self._pop.extend(one.group, one.topic, [one.handle], ms).valid
        if not valid:
            self.remove([one.handle])
        return valid
