"""What name servers answer: the brokers, and the queues of a topic.

Source: `DefaultRequestProcessor`, `TopicRouteData`, `ClusterInfo`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyrocket.errors import UnsupportedError
from pyrocket.remoting.calls import ServerCall, has_code, table_of
from pyrocket.remoting.codes import RequestCode, ResponseCode
from pyrocket.remoting.frames import Frame
from pyrocket.values.admin import TopicConfig

MASTER = 0
"""The id of the master among the brokers with one name."""


@dataclass(frozen=True)
class BrokerAddresses:
    """The live brokers with one name: `addresses` by their id, of which 0 is the master."""

    cluster: str
    name: str
    addresses: Mapping[int, str]


@dataclass(frozen=True)
class TopicRouteData:
    """The brokers and the queues of a topic.

    Attributes:
        topic: The name of the topic.
        queues: The settings of the topic by the name of the broker.
        brokers: The live brokers by name.
        order: `orderTopicConf`, which names the queues of an ordered topic; usually empty.
    """

    topic: str
    queues: Mapping[str, TopicConfig]
    brokers: Mapping[str, BrokerAddresses]
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


def route(topic: str) -> ServerCall[TopicRouteData | None]:
    """Ask a name server for the route of a topic; None if it knows none.

    Raises UnsupportedError (UNSUPPORTED_TOPIC) for a static topic, whose queues move.
    """
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return ServerCall(
        f"the route of the topic {topic!r}",
        Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields),
        partial(_route, topic),
        has_code(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
    )


def _route(topic: str, answer: Frame) -> TopicRouteData | None:
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    table = table_of(answer)
    if table.get("topicQueueMappingByBroker"):
        raise UnsupportedError(
            f"{topic!r} is a static topic, whose queues move between brokers.",
            remedy="Copy its messages to a topic that is not static, and read that.",
            code="UNSUPPORTED_TOPIC",
        )
    queues = {
        str(data["brokerName"]): TopicConfig(
            topic, int(data["readQueueNums"]), int(data["writeQueueNums"]), int(data["perm"])
        )
        for data in table.get("queueDatas") or ()
    }
    brokers = _brokers(table.get("brokerDatas") or ())
    return TopicRouteData(topic, queues, brokers, str(table.get("orderTopicConf") or ""))


def _brokers(tables: Collection[Mapping[str, Any]]) -> dict[str, BrokerAddresses]:
    brokers = (
        BrokerAddresses(
            str(table.get("cluster", "")),
            str(table["brokerName"]),
            {int(key): str(address) for key, address in sorted(table["brokerAddrs"].items())},
        )
        for table in tables
    )
    return {broker.name: broker for broker in brokers}


def live_brokers() -> ServerCall[dict[str, BrokerAddresses]]:
    """Ask a name server for all live brokers by name."""
    return ServerCall(
        "the brokers",
        Frame(RequestCode.GET_BROKER_CLUSTER_INFO),
        lambda answer: _brokers((table_of(answer).get("brokerAddrTable") or {}).values()),
    )


def topic_names() -> ServerCall[list[str]]:
    """Ask a name server for the names of all topics, sorted, including those of the system."""
    return ServerCall(
        "the topics",
        Frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        lambda answer: sorted(map(str, table_of(answer).get("topicList") or ())),
    )
