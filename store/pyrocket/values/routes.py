"""The routes of topics to brokers, and the registrations of brokers from which they follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrocket.values.admin import TopicConfig

PRIMARY = 0
"""The id of a primary broker; replicas have larger ids."""


@dataclass(frozen=True)
class TopicData(TopicConfig):
    """A topic of one broker, as the broker registers it, without its id.

    Attributes:
        message_type: The type of messages that it accepts, such as FIFO; empty for all types.
    """

    message_type: str = ""


@dataclass(frozen=True)
class Registration:
    """The name, the address and the topics that a broker registers.

    Attributes:
        address: The address at which clients reach the broker.
        data_version: Increases with every change of the topics.
        store: The id of the broker's store; empty for an older release.
        term: The term of the store, which each promotion of a replica increases.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    data_version: int
    topics: Sequence[TopicData]
    store: str = ""
    term: int = 0


@dataclass(frozen=True)
class QueueData:
    """The queues of a topic at the brokers with one name."""

    broker: str
    topic: TopicData


@dataclass(frozen=True)
class BrokerData:
    """The live brokers with one name: a primary and its replicas.

    Attributes:
        addresses: The address of each broker, by its id.
        data_version: The version of the topics of the broker with the lowest id; 0 for RocketMQ.
    """

    cluster: str
    name: str
    addresses: dict[int, str]
    data_version: int = 0


@dataclass(frozen=True)
class Route:
    """The route of a topic. Lists are sorted by broker; an unknown topic has empty lists.

    Attributes:
        queues: The queues at the live `brokers`, in the same order.
        gone: For an ordered topic, its queues at brokers that are gone.
    """

    topic: str
    queues: list[QueueData] = field(default_factory=list)
    brokers: list[BrokerData] = field(default_factory=list)
    gone: list[QueueData] = field(default_factory=list)


def primaries(brokers: Mapping[str, Mapping[int, str]]) -> dict[str, str]:
    """Return the addresses of the primaries by name, given those of all brokers by name and id."""
    return {name: by_id[PRIMARY] for name, by_id in brokers.items() if PRIMARY in by_id}


class TopicSettings(NamedTuple):
    """The settings of a topic by broker.

    Attributes:
        live: At the live brokers.
        gone: For an ordered topic, at brokers that are gone: those that the name server knows, and
            those that this client has known.
    """

    live: Mapping[str, TopicConfig]
    gone: Mapping[str, TopicConfig]
