"""Finds brokers and the queues of topics through name servers.

A name server forgets a broker that has been silent or has closed its connection, and one that was
restarted knows none for half a minute. So a route that is missing does not mean that the topic is
gone: the last known route stays valid. Source: `RouteInfoManager`, `MQClientInstance`.
"""

import logging
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pyrocket.base.credentials import Credentials
from pyrocket.errors import OptionError, PyrocketError, UnsupportedError
from pyrocket.remoting.calls import ServerCall
from pyrocket.remoting.codes import ResponseCode
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.frames import Frame
from pyrocket.remoting.routes import (
    MASTER,
    BrokerAddresses,
    TopicRouteData,
    live_brokers,
    route,
    topic_names,
)

ROUTE_S = 30.0
"""How long a route is used before it is asked for again, as in RocketMQ's clients."""

_LEAST_S = 0.1
_SOON = 0.1
"""The share of the life of a route after which a doubtful one is asked for again."""

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)


@dataclass
class _Known:
    """A route that was answered; `asked_at` is on the monotonic clock."""

    route: TopicRouteData
    asked_at: float
    is_doubtful: bool = False


class NameServers:
    """Asks name servers, one of them until it fails. Safe to share between threads."""

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials = Credentials(),  # noqa: B008 - it cannot be changed
        *,
        broker_addresses: Mapping[str, str] | None = None,
        route_s: float = ROUTE_S,
    ) -> None:
        """Connect when they are first asked.

        addresses: HOST:PORT of each name server.
        broker_addresses: The address of the master by the name of its broker, where the registered
            one cannot be reached from here, such as that of a container.
        route_s: How long a route is used.

        Raises OptionError if there is no address.
        """
        if not addresses:
            raise OptionError("there is no name server.", remedy="Name one: HOST:9876.")
        self._servers = [
            ConnectionPool(address, credentials, "name server")
            for address in random.sample([*addresses], len(addresses))
        ]
        self._replaced, self._route_s = broker_addresses or {}, route_s
        self._current = self._servers[0]
        self._routes: dict[str, _Known] = {}

    def routes(
        self, topics: Collection[str], seconds: float, *, fresh: bool = False
    ) -> dict[str, TopicRouteData]:
        """Return the routes of topics; those that no name server has ever known are left out.

        Routes that are older than `route_s`, with `fresh` all, are asked for in one flight. If a
        name server has none any longer, or none answers, the last known routes are returned.

        Raises TransportError if no name server answers and a route was never known.
        """
        now = time.monotonic()
        asked = [topic for topic in topics if fresh or self._is_old(topic, now)]
        try:
            answers = self._ask([*map(route, asked)], seconds)
        except PyrocketError as error:
            if any(topic not in self._routes for topic in asked):
                raise
            for topic in asked:
                self._keep(topic, now, f"no name server has answered: {error}")
        else:
            for topic, answer in zip(asked, answers, strict=True):
                self._learn(topic, now, answer)
        return {topic: self._routes[topic].route for topic in topics if topic in self._routes}

    def brokers(self, seconds: float) -> dict[str, BrokerAddresses]:
        """Return all live brokers by name."""
        (brokers,) = self._ask([live_brokers()], seconds)
        return self._reachable(brokers)

    def topics(self, seconds: float) -> list[str]:
        """Return the names of all topics with a route, sorted, including those of the system."""
        (names,) = self._ask([topic_names()], seconds)
        return names

    def forget(self, topic: str) -> None:
        """Forget the route of a topic, because its brokers have said that it is gone."""
        self._routes.pop(topic, None)

    @property
    def place(self) -> str:
        """The name server that is asked next."""
        return self._current.place

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        for server in self._servers:
            server.close()

    def _is_old(self, topic: str, now: float) -> bool:
        known = self._routes.get(topic)
        return known is None or now - known.asked_at >= self._route_s

    def _ask(self, calls: Sequence[ServerCall[_Value]], seconds: float) -> list[_Value]:
        """Return what the first name server that answers knows.

        Each of those that are left gets an equal share of the time that is left.
        """
        end = time.monotonic() + seconds if calls else 0
        for left in range(len(self._servers) if calls else 0, 0, -1):
            server = self._current
            try:
                share = max((end - time.monotonic()) / left, _LEAST_S)
                answers = server.exchange([call.request for call in calls], share)
                return [
                    _answered(call, answer, server.place)
                    for call, answer in zip(calls, answers, strict=True)
                ]
            except PyrocketError:
                self._leave(server)
                if left == 1:
                    raise
        return []

    def _leave(self, server: ConnectionPool) -> None:
        """Ask the next name server from now on, unless another thread has moved already."""
        if self._current is server:
            at = self._servers.index(server)
            self._current = self._servers[(at + 1) % len(self._servers)]

    def _learn(self, topic: str, now: float, answer: TopicRouteData | None) -> None:
        """Remember a route; without one, keep the last known one."""
        if answer is not None:
            reachable = replace(answer, brokers=self._reachable(answer.brokers))
            self._routes[topic] = _Known(reachable, now)
        elif topic in self._routes:
            self._keep(topic, now, "name servers have none any longer")

    def _keep(self, topic: str, now: float, reason: str) -> None:
        """Use the last known route of a topic until it is asked for again soon; log it once."""
        known = self._routes[topic]
        known.asked_at = now - (1 - _SOON) * self._route_s
        if not known.is_doubtful:
            _log.warning("the last known route of the topic %s is used: %s", topic, reason)
        known.is_doubtful = True

    def _reachable(self, brokers: Mapping[str, BrokerAddresses]) -> dict[str, BrokerAddresses]:
        """Return the brokers with the addresses at which they can be reached from here."""
        return {
            name: replace(broker, addresses={MASTER: self._replaced[name]})
            if name in self._replaced
            else broker
            for name, broker in brokers.items()
        }


def _answered(call: ServerCall[_Value], answer: Frame, place: str) -> _Value:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise UnsupportedError(
            f"{place} is a broker, not a name server.",
            remedy="Use the address of a name server, usually port 9876; it names the brokers.",
            code="PROTOCOL_UNKNOWN",
        )
    return call.value(answer, place)
