"""The brokers of a cluster: their addresses, and calls that are repeated while one restarts."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TypeVar

from pyrocket.base.clock import Pauses
from pyrocket.base.credentials import Credentials
from pyrocket.errors import BrokerBusyError, TopicNotFoundError, TransportError
from pyrocket.remoting.calls import TOPIC_REMEDY, ServerCall
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.name_servers import ROUTE_S, NameServers
from pyrocket.values.routes import PRIMARY as MASTER
from pyrocket.values.routes import BrokerData

ATTEMPT_S = 15.0
"""The longest wait for the answer to one attempt of a call."""

LAST_PAUSE_S = 1.0
"""The longest pause between attempts."""

_LEAST_S = 0.1

_Value = TypeVar("_Value")


def repeated(work: Callable[[float], _Value], seconds: float) -> _Value:
    """Return the result of `work`, which is called with the longest time of an attempt.

    It is called again after a TransportError whose call can be repeated and after a
    BrokerBusyError, until `seconds` have passed.
    """
    pauses = Pauses(seconds, last=LAST_PAUSE_S)
    while True:
        seconds = min(max(pauses.left, _LEAST_S), ATTEMPT_S)
        try:
            return work(seconds)
        except (TransportError, BrokerBusyError) as error:
            is_safe = not isinstance(error, TransportError) or error.repeat_is_safe
            if not is_safe or not pauses.wait():
                raise


class RocketMQCluster(NameServers):
    """Calls the name servers and the brokers of a cluster. Safe to share between threads.

    Messages are also read from slaves: if the master suggests it, or cannot be reached.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        *,
        broker_addresses: Mapping[str, str] | None = None,
    ) -> None:
        """Connect when it is first used. The arguments are those of NameServers."""
        super().__init__(addresses, credentials, broker_addresses=broker_addresses)
        self._pools: dict[tuple[str, int], ConnectionPool] = {}
        self._reads_at: dict[str, int] = {}
        self._topics: tuple[float, list[str]] = -math.inf, []

    def _asked(
        self, calls: Sequence[ServerCall[_Value]], seconds: float, *, once: bool = False
    ) -> list[_Value]:
        ask = partial(super()._asked, calls)
        return ask(min(seconds, ATTEMPT_S)) if once else repeated(ask, seconds)

    def topic_names(self, seconds: float) -> list[str]:
        """Return the names of all topics with a route, as of the last 30 s."""
        asked_at, topics = self._topics
        if time.monotonic() - asked_at >= ROUTE_S:
            topics = super().topic_names(seconds)
            self._topics = time.monotonic(), topics
        return topics

    def not_found(self, topic: str, seconds: float) -> TopicNotFoundError:
        """Return the error about a topic without a route; it names a similar one."""
        near = get_close_matches(topic, self.topic_names(seconds), 1)
        return TopicNotFoundError(
            f"there is no topic {topic!r}, or no live broker has it.",
            remedy=f"Did you mean {near[0]!r}?" if near else TOPIC_REMEDY,
        )

    def broker(self, name: str, seconds: float) -> BrokerData:
        """Return a live broker, also one that has just started; without a name, the first one.

        Raises TransportError if name servers do not know it after `seconds`.
        """

        def known(left: float) -> BrokerData:
            if name in self._brokers:
                return self._brokers[name]
            live = self.live_brokers(left)
            broker = live.get(name or min(live, default=""))
            if broker is None:
                raise TransportError(
                    f"{self._servers[0].place} knows no broker {name}".rstrip() + ".",
                    remedy="Start it; brokers register every 30 s. If it has left the cluster for"
                    " good, name it in the option removedBrokers.",
                    repeat_is_safe=True,
                )
            return broker

        return repeated(known, seconds)

    def pool(self, name: str, seconds: float, *, reads: bool = False) -> ConnectionPool:
        """Return the connections to the master of a broker, or with `reads` to where it is read.

        Raises TransportError.
        """
        addresses = self.broker(name, seconds).addresses
        place = self._reads_at.get(name, MASTER) if reads else MASTER
        if reads and place not in addresses:
            place = min(addresses, default=MASTER)
        address = addresses.get(place)
        if address is None:
            self.lost(name)
            raise TransportError(
                f"the broker {name} has no live master.",
                remedy="Start it: ranges are planned by the master alone.",
                repeat_is_safe=True,
            )
        known = self._pools.get((name, place))
        if known is None or known.address != address:
            if known is not None:
                known.close()
            title = f"slave {place} of the broker" if place else "broker"
            known = ConnectionPool(address, self._credentials, f"{title} {name}")
            known.broker_id, self._pools[name, place] = place, known
        known.slaves = () if place else [key for key in addresses if key != MASTER]
        return known

    def read_at(self, name: str, broker_id: int) -> None:
        """Read a broker at this id from now on, if it is alive."""
        self._reads_at[name] = broker_id

    def lost(self, name: str, *, reads: bool = False) -> None:
        """Ask for the addresses of a broker again; with `reads`, read it at its next id."""
        known = self._brokers.pop(name, None)
        if reads and known:
            last = self._reads_at.get(name, MASTER)
            self.read_at(name, min((key for key in known.addresses if key > last), default=MASTER))

    def ask(
        self, name: str, calls: Sequence[ServerCall[_Value]], seconds: float, *, reads: bool = False
    ) -> list[_Value]:
        """Make calls at a broker in one flight, and return their values in the same order.

        reads: Whether slaves may answer.
        """

        def answered(left: float) -> list[_Value]:
            try:
                return self.pool(name, left, reads=reads).ask(calls, left)
            except TransportError:
                self.lost(name, reads=reads)
                raise

        return repeated(answered, seconds) if calls else []

    def close(self) -> None:
        """Close all connections; later calls open new ones."""
        super().close()
        for pool in self._pools.values():
            pool.close()
