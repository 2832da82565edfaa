"""Finds brokers and the queues of topics through name servers.

A name server forgets a broker that has been silent or has closed its connection, and one that was
restarted knows none for half a minute. So a route that is missing does not mean that the topic is
gone: the last known route stays valid. Source: `DefaultRequestProcessor`, `TopicRouteData`,
`ClusterInfo`, `RouteInfoManager`, `MQClientInstance`.
"""

import logging
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pyrocket.base.credentials import Credentials
from pyrocket.errors import OptionError, PyrocketError, UnsupportedError
from pyrocket.remoting.calls import CallKind, ResponseCode, ServerCall, succeeded, table_of
from pyrocket.remoting.connection import ConnectionPool
from pyrocket.remoting.frames import Frame
from pyrocket.values.admin import TopicConfig
from pyrocket.values.routes import PRIMARY as MASTER
from pyrocket.values.routes import BrokerData

ROUTE_S = 30.0
"""How long a route is used before it is asked for again, as in RocketMQ's clients."""

_LEAST_S = 0.1
_SOON = 0.1
"""The share of the life of a route after which a doubtful one is asked for again."""

_LIGHT_QUEUE = "%LMQ%"

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicRouteData:
    """The brokers and the queues of a topic.

    Attributes:
        queues: The settings of the topic by the name of the broker.
        brokers: The live brokers by name.
        order: `orderTopicConf`, which names the queues of an ordered topic; usually empty.
    """

    queues: Mapping[str, TopicConfig]
    brokers: Mapping[str, BrokerData]
    order: str = ""

    @property
    def write_queues(self) -> dict[str, int]:
        """Broker → its write queues, sorted; of an ordered topic also those of brokers that are
        gone.
        """
        if self.order:
            pairs = (entry.split(":") for entry in self.order.split(";") if entry)
            return {broker: int(count) for broker, count in pairs}
        return {
            broker: topic.write_queues
            for broker, topic in sorted(self.queues.items())
            if topic.writable
            and broker in self.brokers
            and MASTER in self.brokers[broker].addresses
        }


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
        replaced = (broker_addresses or {}).items()
        self._replaced = {name: {MASTER: address} for name, address in replaced}
        self._credentials, self._route_s = credentials, route_s
        self._routes: dict[str, TopicRouteData] = {}
        self._old_at: dict[str, float] = {}
        self._doubtful: set[str] = set()
        self._brokers: dict[str, BrokerData] = {}

    def routes(
        self, topics: Collection[str], seconds: float, *, fresh: bool = False
    ) -> dict[str, TopicRouteData]:
        """Return the routes of topics; those that no name server has ever known are left out.

        Routes that are older than `route_s`, with `fresh` all, are asked for in one flight. If a
        name server has none any longer, or none answers, the last known routes are returned.

        Raises TransportError if no name server answers and a route was never known;
        UnsupportedError (UNSUPPORTED_TOPIC) for light queues and static topics.
        """
        now = time.monotonic()
        asked = [topic for topic in topics if fresh or now >= self._old_at.get(topic, now)]
        are_known = self._routes.keys() >= {*asked}
        reason = "name servers have none any longer"
        try:
            answers = self._asked([*map(_route, asked)], seconds, once=are_known)
        except PyrocketError as error:
            if not are_known:
                raise
            answers, reason = [None] * len(asked), f"no name server has answered: {error}"
        for topic, answer in zip(asked, answers, strict=True):
            if answer is not None:
                brokers = self._reachable(answer.brokers)
                self._routes[topic] = replace(answer, brokers=brokers)
                self._old_at[topic] = now + self._route_s
                self._doubtful.discard(topic)
            elif topic in self._routes:
                self._keep(topic, now, reason)
        return {topic: self._routes[topic] for topic in topics if topic in self._routes}

    def live_brokers(self, seconds: float) -> dict[str, BrokerData]:
        """Return all live brokers by name."""
        (brokers,) = self._asked([_all_brokers()], seconds)
        return self._reachable(brokers)

    def topic_names(self, seconds: float) -> list[str]:
        """Return the names of all topics with a route, sorted, including those of the system."""
        (names,) = self._asked([_all_topics()], seconds)
        return names

    def forget_topic(self, topic: str) -> None:
        """Forget the route of a topic, because its brokers have said that it is gone."""
        self._routes.pop(topic, None)
        self._old_at.pop(topic, None)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        for server in self._servers:
            server.close()

    def _asked(
        self, calls: Sequence[ServerCall[_Value]], seconds: float, *, once: bool = True
    ) -> list[_Value]:
        """Return what the first name server that answers knows; `once` is for subclasses.

        Each of those that are left gets an equal share of the time that is left.
        """
        end, servers = time.monotonic() + seconds, self._servers
        for at, server in enumerate(servers if calls else ()):
            share = (end - time.monotonic()) / (len(servers) - at)
            try:
                answers = server.exchange([call.request for call in calls], max(share, _LEAST_S))
                both = zip(calls, answers, strict=True)
                return [_value(call, answer, server.place) for call, answer in both]
            except PyrocketError:
                # The others are asked first from now on.
                self._servers = [*servers[at + 1 :], *servers[: at + 1]]
                if server is servers[-1]:
                    raise
        return []

    def _keep(self, topic: str, now: float, reason: str) -> None:
        """Use the last known route of a topic until it is asked for again soon; log it once."""
        self._old_at[topic] = now + _SOON * self._route_s
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


def _value(call: ServerCall[_Value], answer: Frame, place: str) -> _Value:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        remedy = "Use the address of a name server, usually port 9876; it names the brokers."
        message = f"{place} is a broker, not a name server."
        raise UnsupportedError(message, remedy=remedy, code="PROTOCOL_UNKNOWN")
    return call.value(answer, place)


def _route(topic: str) -> ServerCall[TopicRouteData | None]:
    """Ask for the route of a topic; None if there is none. Raises UnsupportedError."""
    if topic.startswith(_LIGHT_QUEUE):
        raise _unsupported(topic, "a light queue, which has no route", "the topic of its messages")
    read, absent = partial(_read_route, topic), [ResponseCode.TOPIC_NOT_EXIST]
    fields = "topic acceptStandardJsonOnly=true"
    kind = CallKind(105, "the route of the topic {topic!r}", read, fields, also=absent)
    return kind(topic)


def _read_route(topic: str, answer: Frame) -> TopicRouteData | None:
    if not succeeded(answer):
        return None
    table = table_of(answer)
    if table.get("topicQueueMappingByBroker"):
        what = "a static topic, whose queues move between brokers"
        raise _unsupported(topic, what, "a topic that is not static, into which it is copied")
    queues = {
        str(data["brokerName"]): TopicConfig(
            topic, int(data["readQueueNums"]), int(data["writeQueueNums"]), int(data["perm"])
        )
        for data in table.get("queueDatas") or ()
    }
    brokers = _brokers(table.get("brokerDatas") or ())
    return TopicRouteData(queues, brokers, str(table.get("orderTopicConf") or ""))


def _unsupported(topic: str, what: str, instead: str) -> UnsupportedError:
    return UnsupportedError(
        f"{topic!r} is {what}.", remedy=f"Use {instead}.", code="UNSUPPORTED_TOPIC"
    )


def _brokers(tables: Collection[Mapping[str, Any]]) -> dict[str, BrokerData]:
    brokers = {}
    for table in tables:
        name, addresses = str(table["brokerName"]), sorted(table["brokerAddrs"].items())
        by_id = {int(key): str(address) for key, address in addresses}
        brokers[name] = BrokerData(str(table.get("cluster", "")), name, by_id)
    return brokers


_all_brokers = CallKind(
    106,
    "the brokers",
    lambda answer: _brokers((table_of(answer).get("brokerAddrTable") or {}).values()),
)
_all_topics = CallKind(
    206, "the topics", lambda answer: sorted(map(str, table_of(answer).get("topicList") or ()))
)
