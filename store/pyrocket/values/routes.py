"""The routes of topics to brokers, and the registrations of brokers from which they follow."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyrocket.values.topics import PERM_READ, PERM_WRITE


@dataclass(frozen=True)
class TopicData:
    """A topic of one broker.

    Attributes:
        message_type: The type of messages that it accepts, such as FIFO; empty for all types.
        ordered: Whether its queues at brokers that are gone remain in its route.
    """

    name: str
    read_queues: int
    write_queues: int
    perm: int
    message_type: str = ""
    ordered: bool = False

    @property
    def readable(self) -> bool:
        """Whether its messages may be read."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether messages may be sent to it."""
        return bool(self.perm & PERM_WRITE)


@dataclass(frozen=True)
class Registration:
    """The name, the address and the topics that a broker registers.

    Attributes:
        address: The address at which clients reach the broker.
        data_version: Increases with every change of the topics.
        store: The id of the broker's store; empty for an older release.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    data_version: int
    topics: Sequence[TopicData]
    store: str = ""


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
        data_version: The version of the topics of the broker with the lowest id.
    """

    cluster: str
    name: str
    addresses: dict[int, str]
    data_version: int


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
