"""The thread that wakes long polls when messages arrive or become visible again.

It also sweeps the states of consumer groups, and renews invisible times for clients that use
automatic renewal.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from pyrocket.base.rounds import Rounds
from pyrocket.broker.pop.holds import Holds, ParkedPoll
from pyrocket.broker.pop.pop import Pop
from pyrocket.broker.pop.values import News
from pyrocket.broker.renewals import Renewals

Wake = Callable[[], None]
"""Wakes a parked poll. Called once, by any thread; must not block."""

_LOOK_S = 0.01
"""Interval of checks for messages from the delay service, while polls are parked."""

_SWEEP_S = 1.0
_LEAST_S = 0.02


class Polls:
    """The parked polls of a broker. Safe to share between threads."""

    def __init__(
        self, pop: Pop, now_ms: Callable[[], int], is_connected: Callable[[Hashable], bool]
    ) -> None:
        """`is_connected` returns whether a client is still connected."""
        self.pop, self._now_ms = pop, now_ms
        self.holds: Holds[Wake] = Holds()
        self.renewals = Renewals(pop, is_connected)
        self._changed, self._closed, self.rounds = threading.Event(), False, Rounds()
        self._lock, self._sweep_at = threading.Lock(), 0.0
        self._thread = threading.Thread(target=self._run, name="pyrocket-polls", daemon=True)
        self._thread.start()

    def appended(self) -> None:
        """Check for new messages after an append.

        Without parked polls this does nothing, because a poll checks for messages when it is
        parked.
        """
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
        """Whether the thread is alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        rounds = self.rounds
        while not self._closed:
            self._changed.wait(self._pause_s())
            self._changed.clear()
            if len(self.holds):
                rounds.run("waking long polls failed", self._wake_for_arrivals)
            if time.monotonic() >= self._sweep_at:
                with self._lock:
                    self._sweep_at = time.monotonic() + _SWEEP_S
                rounds.run("renewing invisible times failed", self.renewals.renew)
                rounds.run("sweeping the states of groups failed", self._sweep)

    def _pause_s(self) -> float:
        pause_s = max(self._sweep_at - time.monotonic(), _LEAST_S)
        return min(pause_s, _LOOK_S) if len(self.holds) else pause_s

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
            self._sweep_in(max((swept.next_ms - self._now_ms()) / 1000, _LEAST_S))

    def _wake_for(self, news: News, _: object) -> None:
        _wake(self.holds.visible(news.group, news.topic))


def _wake(holds: Iterable[ParkedPoll[Wake]]) -> None:
    for hold in holds:
        hold.waiter()
