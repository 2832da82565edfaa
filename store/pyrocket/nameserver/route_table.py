"""The brokers that are registered with a name server, and the routes of their topics.

Source: RocketMQ's `RouteInfoManager`. Nothing is stored on disk. Name servers do not communicate
with each other; every broker registers with all of them.
"""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from pyrocket.errors import InvalidInputError, StoreUnavailableError
from pyrocket.metadata.topics import PERM_READ, PERM_WRITE
from pyrocket.nameserver.addresses import check_advertised

PRIMARY = 0
"""The id of a primary broker; replicas have larger ids."""

EXPIRY_S = 120
"""A broker is removed this many seconds after its last registration."""

_MAX_NAME_CHARACTERS = 127
_MAX_QUEUES = 1 << 16


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
        data_version: Increases with every change of the topics, also across restarts of the broker.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    data_version: int
    topics: Sequence[TopicData]


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


@dataclass
class _Live:
    """A broker that is registered."""

    registration: Registration
    connection: Hashable
    seen_s: float
    topics: dict[str, TopicData]


class RouteTable:
    """The registrations of all brokers. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock, self._lock = clock, threading.Lock()
        self._brokers: dict[str, dict[int, _Live]] = {}
        self._ordered: dict[str, dict[str, TopicData]] = {}

    def register(self, registration: Registration, connection: Hashable) -> None:
        """Register a broker, or renew its registration, until `disconnect` of this connection.

        A registration with a lower data version than the current one is ignored.

        Raises OptionError, InvalidInputError (REGISTRATION_INVALID), and StoreUnavailableError
        (BROKER_NAME_TAKEN) if a live broker at another address has the same name and id.
        """
        _check(registration)
        topics = {each.name: each for each in registration.topics}
        with self._lock:
            self._expire()
            same_name = self._brokers.get(registration.broker, {})
            if (known := same_name.get(registration.broker_id)) is not None:
                if known.registration.address != registration.address:
                    raise _taken(known.registration)
                if known.registration.data_version > registration.data_version:
                    return
            live = _Live(registration, connection, self._clock(), topics)
            self._brokers.setdefault(registration.broker, {})[registration.broker_id] = live
            self._remember(registration.broker, topics.values())

    def disconnect(self, connection: Hashable) -> None:
        """Remove the brokers whose last registration came over this connection."""
        with self._lock:
            self._keep(lambda live: live.connection != connection)

    def routes(self, topics: Collection[str]) -> list[Route]:
        """Return the route of each topic, in the same order."""
        with self._lock:
            self._expire()
            return [self._route(topic) for topic in topics]

    def cluster_topics(self, cluster: str = "") -> list[str]:
        """Return the sorted names of the topics of a cluster; an empty name means all clusters."""
        with self._lock:
            self._expire()
            found = self._leaders()
            names = (one.topics for one in found if cluster in ("", one.registration.cluster))
            return sorted({name for each in names for name in each})

    def brokers(self) -> list[BrokerData]:
        """Return all brokers, ordered by name."""
        with self._lock:
            self._expire()
            return [_broker_data(self._brokers[name]) for name in sorted(self._brokers)]

    def _route(self, topic: str) -> Route:
        having = [live for live in self._leaders() if topic in live.topics]
        names = [live.registration.broker for live in having]
        queues = [
            QueueData(name, live.topics[topic]) for name, live in zip(names, having, strict=True)
        ]
        brokers = [_broker_data(self._brokers[name]) for name in names]
        return Route(topic, queues, brokers, self._gone(topic) if names else [])

    def _remember(self, broker: str, topics: Iterable[TopicData]) -> None:
        """Keep the ordered topics of a broker, until it registers without them."""
        ordered = {one.name: one for one in topics if one.ordered}
        self._ordered.pop(broker, None)
        if ordered:
            self._ordered[broker] = ordered

    def _gone(self, topic: str) -> list[QueueData]:
        """Return the queues of an ordered topic at brokers that are gone."""
        return [
            QueueData(broker, topics[topic])
            for broker, topics in sorted(self._ordered.items())
            if topic in topics and broker not in self._brokers
        ]

    def _leaders(self) -> Iterable[_Live]:
        """Yield the broker with the lowest id for each name; the route table uses its topics."""
        return (self._brokers[name][min(self._brokers[name])] for name in sorted(self._brokers))

    def _expire(self) -> None:
        oldest = self._clock() - EXPIRY_S
        self._keep(lambda live: live.seen_s > oldest)

    def _keep(self, wanted: Callable[[_Live], bool]) -> None:
        kept = {
            name: {number: live for number, live in by_id.items() if wanted(live)}
            for name, by_id in self._brokers.items()
        }
        self._brokers = {name: by_id for name, by_id in kept.items() if by_id}


def _broker_data(by_id: dict[int, _Live]) -> BrokerData:
    leader = by_id[min(by_id)].registration
    addresses = {number: by_id[number].registration.address for number in sorted(by_id)}
    return BrokerData(leader.cluster, leader.broker, addresses, leader.data_version)


def _check(registration: Registration) -> None:
    names = registration.cluster, registration.broker
    counts = [n for each in registration.topics for n in (each.read_queues, each.write_queues)]
    is_valid = (
        all(0 < len(name) <= _MAX_NAME_CHARACTERS for name in names)
        and registration.broker_id >= 0
        and all(each.name for each in registration.topics)
        and all(0 <= count <= _MAX_QUEUES for count in counts)
    )
    if not is_valid:
        raise InvalidInputError(
            f"the registration of the broker {registration.broker[:_MAX_NAME_CHARACTERS]!r} needs"
            " a cluster, a name, an id of at least 0, and names and queue counts of its topics.",
            remedy="Use a broker of the same release as the name server.",
            code="REGISTRATION_INVALID",
        )
    check_advertised(registration.address)


def _taken(known: Registration) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"a broker named {known.broker} with the id {known.broker_id} is registered at"
        f" {known.address}.",
        remedy="Stop that broker, or give one of them another name: --broker-name, before its"
        " store is created.",
        code="BROKER_NAME_TAKEN",
    )
