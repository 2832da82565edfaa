"""The thread that wakes long polls when messages arrive or become visible again.

It also sweeps the states of consumer groups, and renews invisible times for clients that use
automatic renewal, while they are connected. Parked polls are indexed by the queue that they wait
for. The polls of a group on all queues of a topic share the messages, so only the poll that has
waited longest is woken; if it finds messages, it wakes the next one (`wait_for_messages`). The cost
of a wake-up does not depend on the number of polls parked.

Source: `DefaultReceiptHandleManager`, `RenewStrategyPolicy` of RocketMQ's proxy.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from pyrocket.base.rounds import Rounds
from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import News
from pyrocket.formats.system_topics import RETRY_PREFIX

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
        renewal = self._by_handle.get(handle)
        return renewal.attempt if renewal else 0

    def release(self, client: Hashable) -> None:
        """Make the messages of a disconnected client visible soon."""
        with self._lock:
            released = [renewal for renewal in self._by_handle.values() if renewal.client == client]
        self._extend(released, RELEASED_MS)
        self.remove(renewal.handle for renewal in released)

    def renew(self) -> None:
        """Renew the messages that are due, with one change for each group, topic and time.

        After a BrokerBusyError, the next call renews the remaining messages.
        """
        now = time.monotonic()
        with self._lock:
            renewals = [*self._by_handle.values()]
        due = [renewal for renewal in renewals if renewal.until - now < _AHEAD_S]
        by_ms: dict[int, list[Renewal]] = {}
        for renewal in due:
            ended = now - renewal.began >= _LONGEST_S or not self._is_connected(renewal.client)
            ms = RELEASED_MS if ended else _STEPS_MS[min(renewal.renewed, len(_STEPS_MS) - 1)]
            by_ms.setdefault(ms, []).append(renewal)
        for ms, renewals in by_ms.items():
            for renewal in self._extend(renewals, ms):
                renewal.until, renewal.renewed = now + ms / 1000, renewal.renewed + 1
        self.remove(renewal.handle for renewal in by_ms.get(RELEASED_MS, ()))

    def _extend(self, renewals: Iterable[Renewal], ms: int) -> list[Renewal]:
        """Set when messages become visible; stop renewing messages with invalid handles."""
        by_topic: dict[tuple[str, str], list[Renewal]] = {}
        for renewal in renewals:
            by_topic.setdefault((renewal.group, renewal.topic), []).append(renewal)
        kept: list[Renewal] = []
        for place, several in by_topic.items():
            for start in range(0, len(several), _MAX_TOGETHER):
                kept += self._extend_some(place, several[start : start + _MAX_TOGETHER], ms)
        return kept

    def _extend_some(
        self, place: tuple[str, str], renewals: Sequence[Renewal], ms: int
    ) -> Iterator[Renewal]:
        valid = self._pop.extend(*place, [renewal.handle for renewal in renewals], ms).valid
        for renewal, is_valid in zip(renewals, valid, strict=True):
            if is_valid:
                yield renewal
            else:
                self.remove([renewal.handle])


Wake = Callable[[], None]
"""Wakes a parked poll. Called once, by any thread; must not block."""

_Key = tuple[str, ...] | tuple[str, int]
_Place = tuple[str, str, int | None]


@dataclass(frozen=True)
class ParkedPoll:
    """A long poll of a group on one queue or on all of a topic; `waiter` answers it."""

    group: str
    topic: str
    queue_id: int | None
    waiter: Wake

    @property
    def place(self) -> _Place:
        """Group, topic and queue id: the polls with the same place share the messages."""
        return self.group, self.topic, self.queue_id

    def woken_by(self) -> Iterator[_Key]:
        """Yield the keys that wake the poll: arrivals, due retries, and messages visible again."""
        yield (self.topic,) if self.queue_id is None else (self.topic, self.queue_id)
        yield (RETRY_PREFIX + self.group,)
        yield self.group, self.topic


class Holds:
    """The parked polls of a broker. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[_Key, dict[_Place, dict[ParkedPoll, None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, hold: ParkedPoll) -> None:
        """Add a hold. The caller must then check again for messages that have just arrived."""
        with self._lock:
            for key in hold.woken_by():
                places = self._by_key.setdefault(key, {})
                places.setdefault(hold.place, {})[hold] = None
            self._count += 1

    def remove(self, hold: ParkedPoll) -> bool:
        """Remove a hold; return whether it was still parked."""
        with self._lock:
            return self._remove(hold)

    def arrived(self, topic: str, queue_id: int) -> list[ParkedPoll]:
        """Remove and return the holds that a message in this queue may answer.

        Of each group, these are all holds on this queue, and one hold on all queues of the topic.
        """
        return self._take((topic,), (topic, queue_id))

    def visible(self, group: str, topic: str) -> list[ParkedPoll]:
        """Remove and return holds of a group on a topic, as `arrived`; see `Swept.news`."""
        is_retry = topic == RETRY_PREFIX + group
        return self._take((topic,) if is_retry else (group, topic))

    def _take(self, *keys: _Key) -> list[ParkedPoll]:
        with self._lock:
            polls = [
                hold
                for key in keys
                for (*_, queue_id), holds in self._by_key.get(key, {}).items()
                for hold in islice(holds, 1 if queue_id is None else None)
            ]
            return [hold for hold in polls if self._remove(hold)]

    def _remove(self, hold: ParkedPoll) -> bool:
        held = False
        for key in hold.woken_by():
            places = self._by_key.get(key, {})
            holds = places.get(hold.place, {})
            held = held or hold in holds
            holds.pop(hold, None)
            if not holds:
                places.pop(hold.place, None)
            if not places:
                self._by_key.pop(key, None)
        self._count -= held
        return held


_LOOK_S = 0.01
"""Interval of checks for messages from the delay service, while polls are parked."""

_SWEEP_S = 1.0
_LEAST_S = 0.02


class Polls:
    """The parked polls of a broker. Safe to share between threads."""

    def __init__(self, pop: Pop, is_connected: Callable[[Hashable], bool]) -> None:
        """`is_connected` returns whether a client is still connected."""
        self.pop = pop
        self.holds = Holds()
        self.renewals = Renewals(pop, is_connected)
        self._changed, self._closed, self.rounds = threading.Event(), False, Rounds()
        self._lock, self._sweep_at = threading.Lock(), 0.0
        self._thread = threading.Thread(target=self._run, name="pyrocket-polls", daemon=True)
        self._thread.start()

    def appended(self) -> None:
        """Look for new messages after an append; a poll looks for itself when it is parked."""
        if len(self.holds):
            self._changed.set()

    def visible_in(self, group: str, topic: str, ms: int) -> None:
        """Wake the polls of a group when messages become visible, `ms` milliseconds from now."""
        if ms <= 0:
            _wake(self.holds.visible(group, topic))
        else:
            self._sweep_in(ms / 1000)
            self._changed.set()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._closed = True
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        rounds = self.rounds
        while not self._closed:
            pause_s = max(self._sweep_at - time.monotonic(), _LEAST_S)
            self._changed.wait(min(pause_s, _LOOK_S) if len(self.holds) else pause_s)
            self._changed.clear()
            if len(self.holds):
                rounds.run("waking long polls failed", self._wake_for_arrivals)
            if time.monotonic() >= self._sweep_at:
                with self._lock:
                    self._sweep_at = time.monotonic() + _SWEEP_S
                rounds.run("renewing invisible times failed", self.renewals.renew)
                rounds.run("sweeping the states of groups failed", self._sweep)

    def _sweep_in(self, seconds: float) -> None:
        """Schedule the next sweep in at most `seconds`."""
        with self._lock:
            self._sweep_at = min(self._sweep_at, time.monotonic() + seconds)

    def _wake_for_arrivals(self) -> None:
        for place in self.pop.arrivals():
            _wake(self.holds.arrived(*place))

    def _sweep(self) -> None:
        swept = self.pop.sweep()
        for news in swept.news:
            news.stored.add_done_callback(partial(self._wake_for, news))
        if swept.next_ms is not None:
            self._sweep_in(max((swept.next_ms - self.pop.now()) / 1000, _LEAST_S))

    def _wake_for(self, news: News, _: object) -> None:
        _wake(self.holds.visible(news.group, news.topic))


def _wake(holds: Iterable[ParkedPoll]) -> None:
    for hold in holds:
        hold.waiter()
