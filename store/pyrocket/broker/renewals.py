"""Renews the invisible time of messages automatically while their client is connected.

Source: `DefaultReceiptHandleManager`, `RenewStrategyPolicy` of RocketMQ's proxy.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyrocket.broker.pop.pop import Pop

FIRST_MS = 60_000
_STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
_MAX_TOGETHER = 1000
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

    def __init__(self, pop: Pop, is_connected: Callable[[Hashable], bool]) -> None:
        self._pop, self._is_connected = pop, is_connected
        self._lock = threading.Lock()
        self._by_handle: dict[str, Renewal] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def add(
        self, group: str, topic: str, client: Hashable, handles: Sequence[tuple[str, int]]
    ) -> None:
        """Start renewing messages, each of which is given by its receipt handle and attempt."""
        now = time.monotonic()
        until = now + FIRST_MS / 1000
        with self._lock:
            for handle, attempt in handles:
                self._by_handle[handle] = Renewal(group, topic, handle, attempt, client, now, until)

    def remove(self, handles: Iterable[str]) -> None:
        """Stop renewing messages that were acked, or whose invisible time their client has set."""
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
        self._extend(found, RELEASED_MS)
        self.remove(one.handle for one in found)

    def renew(self) -> None:
        """Renew the messages that are due, with one change for each group, topic and time.

        After a BrokerBusyError, the next call renews the remaining messages.
        """
        now = time.monotonic()
        with self._lock:
            due = [one for one in self._by_handle.values() if one.until - now < _AHEAD_S]
        by_ms: dict[int, list[Renewal]] = {}
        for one in due:
            ended = now - one.began >= _LONGEST_S or not self._is_connected(one.client)
            ms = RELEASED_MS if ended else _STEPS_MS[min(one.renewed, len(_STEPS_MS) - 1)]
            by_ms.setdefault(ms, []).append(one)
        for ms, renewals in by_ms.items():
            for one in self._extend(renewals, ms):
                one.until, one.renewed = now + ms / 1000, one.renewed + 1
        self.remove(one.handle for one in by_ms.get(RELEASED_MS, ()))

    def _extend(self, renewals: Iterable[Renewal], ms: int) -> list[Renewal]:
        """Set when messages become visible; stop renewing messages with invalid handles."""
        by_topic: dict[tuple[str, str], list[Renewal]] = {}
        for one in renewals:
            by_topic.setdefault((one.group, one.topic), []).append(one)
        kept: list[Renewal] = []
        for place, several in by_topic.items():
            for start in range(0, len(several), _MAX_TOGETHER):
                kept += self._extend_some(place, several[start : start + _MAX_TOGETHER], ms)
        return kept

    def _extend_some(
        self, place: tuple[str, str], renewals: Sequence[Renewal], ms: int
    ) -> Iterator[Renewal]:
        valid = self._pop.extend(*place, [one.handle for one in renewals], ms).valid
        for one, is_valid in zip(renewals, valid, strict=True):
            if is_valid:
                yield one
            else:
                self.remove([one.handle])
