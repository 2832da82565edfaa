"""A cluster: its routes and brokers, and calls that are repeated while a server restarts.

A name server forgets a broker that has been silent or has closed its connection, and one that was
restarted knows none for half a minute. So a route that is missing does not mean that the topic is
gone: the last known route stays valid. Source: `RouteInfoManager`, `MQClientInstance`.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TypeVar

from pyrocket.base.clock import Pauses
from pyrocket.base.credentials import Credentials
from pyrocket.errors import (
    BrokerBusyError,
    OptionError,
    PyrocketError,
    TopicNotFoundError,
    TransportError,
)
from pyrocket.remoting.calls import TOPIC_REMEDY, ServerCall
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.name_servers import (
    TopicRouteData,
    all_brokers,
    all_topics,
    topic_route,
    value_of,
)
from pyrocket.values.routes import PRIMARY as MASTER
from pyrocket.values.routes import BrokerData

ATTEMPT_S = 15.0
"""The longest wait for the answer to one attempt of a call."""

LAST_PAUSE_S = 1.0
"""The longest pause between attempts."""

ROUTE_S = 30.0
"""How long a route is used before it is asked for again, as in RocketMQ's clients."""

_LEAST_S = 0.1
_SOON = 0.1
"""The share of the life of a route after which a doubtful one is asked for again."""

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)


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


class RocketMQCluster:
    """Calls the name servers and the brokers of a cluster. Safe to share between threads.

    One name server is asked until it fails. Messages are also read from slaves: if the master
    suggests it, or cannot be reached.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        *,
        broker_addresses: Mapping[str, str] | None = None,
    ) -> None:
        """Connect when it is first used.

        addresses: HOST:PORT of each name server.
        broker_addresses: The address of the master by the name of its broker, where the registered
            one cannot be reached from here, such as that of a container.

        Raises OptionError if there is no address.
        """
        if not addresses:
            raise OptionError("there is no name server.", remedy="Name one: HOST:9876.")
        self._servers = [
            ConnectionPool(address, credentials, "name server")
            for address in random.sample([*addresses], len(addresses))
        ]
        replaced = (broker_addresses or {}).items()
        self._replaced = {name: {MASTER: address} for name, address in replaced}
        self._credentials = credentials
        self._routes: dict[str, TopicRouteData] = {}
        self._old_at: dict[str, float] = {}
        self._doubtful: set[str] = set()
        self._topics: tuple[float, list[str]] = -math.inf, []
        self._brokers: dict[str, BrokerData] = {}
        self._pools: dict[tuple[str, int], ConnectionPool] = {}
        self._reads_at: dict[str, int] = {}

    def routes(
        self, topics: Collection[str], seconds: float, *, fresh: bool = False
    ) -> dict[str, TopicRouteData]:
        """Return the routes of topics; those that no name server has ever known are left out.

        Routes that are older than 30 s, with `fresh` all, are asked for in one flight. If a name
        server has none any longer, or none answers, the last known routes are returned.

        Raises TransportError if no name server answers and a route was never known;
        UnsupportedError (UNSUPPORTED_TOPIC) for light queues and static topics.
        """
        now = time.monotonic()
        asked = [topic for topic in topics if fresh or now >= self._old_at.get(topic, now)]
        are_known = self._routes.keys() >= {*asked}
        reason = "name servers have none any longer"
        ask = partial(self._asked, [*map(topic_route, asked)])
        try:
            answers = ask(min(seconds, ATTEMPT_S)) if are_known else repeated(ask, seconds)
        except PyrocketError as error:
            if not are_known:
                raise
            answers, reason = [None] * len(asked), f"no name server has answered: {error}"
        for topic, answer in zip(asked, answers, strict=True):
            if answer is not None:
                brokers = self._reachable(answer.brokers)
                self._routes[topic] = replace(answer, brokers=brokers)
                self._old_at[topic] = now + ROUTE_S
                self._doubtful.discard(topic)
            elif topic in self._routes:
                self._keep(topic, now, reason)
        return {topic: self._routes[topic] for topic in topics if topic in self._routes}

    def live_brokers(self, seconds: float) -> dict[str, BrokerData]:
        """Return all live brokers by name."""
        (brokers,) = repeated(partial(self._asked, [all_brokers()]), seconds)
        return self._reachable(brokers)

    def topic_names(self, seconds: float) -> list[str]:
        """Return the sorted names of all topics with a route, those of the system too, as of the
        last 30 s.
        """
        asked_at, topics = self._topics
        if time.monotonic() - asked_at >= ROUTE_S:
            (topics,) = repeated(partial(self._asked, [all_topics()]), seconds)
            self._topics = time.monotonic(), topics
        return topics

    def forget_topic(self, topic: str) -> None:
        """Forget the route of a topic, because its brokers have said that it is gone."""
        self._routes.pop(topic, None)
        self._old_at.pop(topic, None)

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
        for pool in (*self._servers, *self._pools.values()):
            pool.close()

    def _asked(self, calls: Sequence[ServerCall[_Value]], seconds: float) -> list[_Value]:
        """Return what the first name server that answers knows.

        Each of those that are left gets an equal share of the time that is left.
        """
        end, servers = time.monotonic() + seconds, self._servers
        for at, server in enumerate(servers if calls else ()):
            share = (end - time.monotonic()) / (len(servers) - at)
            try:
                answers = server.exchange([call.request for call in calls], max(share, _LEAST_S))
                both = zip(calls, answers, strict=True)
                return [value_of(call, answer, server.place) for call, answer in both]
            except PyrocketError:
                # The others are asked first from now on.
                self._servers = [*servers[at + 1 :], *servers[: at + 1]]
                if server is servers[-1]:
                    raise
        return []

    def _keep(self, topic: str, now: float, reason: str) -> None:
        """Use the last known route of a topic until it is asked for again soon; log it once."""
        self._old_at[topic] = now + _SOON * ROUTE_S
        if topic not in self._doubtful:
            _log.warning("the last known route of the topic %s is used: %s", topic, reason)
        self._doubtful.add(topic)

    def _reachable(self, brokers: Mapping[str, BrokerData]) -> dict[str, BrokerData]:
        """Remember brokers with the addresses at which they can be reached from here."""
        reachable = {
            name: replace(broker, addresses=self._replaced.get(name, broker.addresses))
            for name, broker in brokers.items()
        }
        self._brokers = self._brokers | reachable
        return reachable
