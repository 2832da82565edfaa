"""The calls to name servers, which know the brokers and the queues of topics.

Source: `DefaultRequestProcessor`, `TopicRouteData`, `ClusterInfo`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pyrocket.errors import UnsupportedError
from pyrocket.remoting.calls import CallKind, ResponseCode, ServerCall, succeeded, table_of
from pyrocket.remoting.frames import Frame
from pyrocket.values.admin import TopicConfig
from pyrocket.values.routes import PRIMARY as MASTER
from pyrocket.values.routes import BrokerData

_LIGHT_QUEUE = "%LMQ%"

_Value = TypeVar("_Value")


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


def value_of(call: ServerCall[_Value], answer: Frame, place: str) -> _Value:
    """Return the value of an answer of the server at `place`. Raises PyrocketError."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        remedy = "Use the address of a name server, usually port 9876; it names the brokers."
        message = f"{place} is a broker, not a name server."
        raise UnsupportedError(message, remedy=remedy, code="PROTOCOL_UNKNOWN")
    return call.value(answer, place)


def topic_route(topic: str) -> ServerCall[TopicRouteData | None]:
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


all_brokers = CallKind(
    106,
    "the brokers",
    lambda answer: _brokers((table_of(answer).get("brokerAddrTable") or {}).values()),
)
all_topics = CallKind(
    206, "the topics", lambda answer: sorted(map(str, table_of(answer).get("topicList") or ()))
)
