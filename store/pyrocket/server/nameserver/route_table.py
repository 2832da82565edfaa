"""The brokers that are registered with a name server, and the routes of their topics.

Source: RocketMQ's `RouteInfoManager`. Nothing is stored on disk. Name servers do not communicate
with each other; every broker registers with all of them.
"""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, replace

from pyrocket.base.arguments import check_advertised
from pyrocket.errors import InvalidInputError, StoreUnavailableError
from pyrocket.values.admin import PERM_INHERIT, PERM_READ, PERM_WRITE
from pyrocket.values.routes import PRIMARY, BrokerData, QueueData, Registration, Route, TopicData

EXPIRY_S = 120
"""A broker is removed this many seconds after its last registration."""

_MAX_CHARACTERS, _MAX_TOPIC_CHARACTERS = 127, 255
_MAX_QUEUES = 1 << 16


@dataclass
class _Live:
    """A broker that is registered, and the user and the open stream that have registered it."""

    registration: Registration
    connection: Hashable
    user: str
    seen_s: float
    topics: dict[str, TopicData]


class RouteTable:
    """The registrations of all brokers. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock, self._lock = clock, threading.Lock()
        self._brokers: dict[str, dict[int, _Live]] = {}
        self._ordered: dict[str, dict[str, TopicData]] = {}
        self._primary: dict[tuple[str, str], Registration] = {}

    def register(self, registration: Registration, connection: Hashable, user: str = "") -> None:
        """Register a broker, or renew its registration, until `disconnect` of this connection.

        A registration with a lower data version than the last one over this connection is ignored.
        That of an earlier primary is refused, also while the promoted one is not connected.
        Another connection replaces the last one only for the same broker: see `_is_same`.

        Raises OptionError, InvalidInputError (REGISTRATION_INVALID), and StoreUnavailableError
        (BROKER_NAME_TAKEN) if another live broker has the same name.
        """
        _check(registration)
        topics = {topic.name: topic for topic in registration.topics}
        live = _Live(registration, connection, user, self._clock(), topics)
        with self._lock:
            self._expire()
            same_name = self._brokers.get(registration.broker, {})
            for other in same_name.values():
                if not _is_same(live, other):
                    raise _taken(other.registration)
            primary = self._primary.get((registration.broker, user), registration)
            if primary.store == registration.store and registration.term < primary.term:
                raise _succeeded(primary)
            known = same_name.get(registration.broker_id)
            if (
                known is not None
                and known.connection == connection
                and known.registration.data_version > registration.data_version
            ):
                return
            self._brokers.setdefault(registration.broker, {})[registration.broker_id] = live
            if registration.broker_id == PRIMARY:
                self._primary[registration.broker, user] = replace(registration, topics=())
                self._remember(registration.broker, topics.values())

    def disconnect(self, connection: Hashable) -> None:
        """Remove the brokers whose last registration came over this connection."""
        with self._lock:
            self._keep(lambda live: live.connection != connection)

    def routes(self, topics: Collection[str]) -> list[Route]:
        """Return the route of each topic, in the same order: the brokers whose primary has it."""
        with self._lock:
            self._expire()
            return [self._route(topic) for topic in topics]

    def cluster_topics(self, cluster: str = "") -> list[str]:
        """Return the sorted names of the topics of a cluster; an empty name means all clusters."""
        with self._lock:
            self._expire()
            primaries = self._primaries().values()
            topics = (
                live.topics for live in primaries if cluster in ("", live.registration.cluster)
            )
            return sorted({name for names in topics for name in names})

    def brokers(self) -> list[BrokerData]:
        """Return all brokers, ordered by name, also replicas whose primary is gone."""
        with self._lock:
            self._expire()
            return [_broker_data(self._brokers[name]) for name in sorted(self._brokers)]

    def _route(self, topic: str) -> Route:
        having = {n: live.topics for n, live in self._primaries().items() if topic in live.topics}
        queues = [QueueData(name, topics[topic]) for name, topics in having.items()]
        brokers = [_broker_data(self._brokers[name]) for name in having]
        return Route(topic, queues, brokers, self._gone(topic) if having else [])

    def _remember(self, broker: str, topics: Iterable[TopicData]) -> None:
        """Keep the ordered topics of a broker, until it registers without them."""
        ordered = {topic.name: topic for topic in topics if topic.ordered}
        self._ordered.pop(broker, None)
        if ordered:
            self._ordered[broker] = ordered

    def _gone(self, topic: str) -> list[QueueData]:
        """Return the queues of an ordered topic at brokers that are gone."""
        primaries = self._primaries()
        return [
            QueueData(broker, topics[topic])
            for broker, topics in sorted(self._ordered.items())
            if topic in topics and broker not in primaries
        ]

    def _primaries(self) -> dict[str, _Live]:
        """Return the primaries, ordered by name: only they can be written to."""
        brokers = sorted(self._brokers.items())
        return {name: by_id[PRIMARY] for name, by_id in brokers if PRIMARY in by_id}

    def _expire(self) -> None:
        oldest = self._clock() - EXPIRY_S
        self._keep(lambda live: live.seen_s > oldest)

    def _keep(self, wanted: Callable[[_Live], bool]) -> None:
        kept = {
            name: {number: live for number, live in by_id.items() if wanted(live)}
            for name, by_id in self._brokers.items()
        }
        self._brokers = {name: by_id for name, by_id in kept.items() if by_id}


def _is_same(live: _Live, other: _Live) -> bool:
    """Whether a registration may replace that of another connection, or be its replica.

    It must be of the same user and store, and with the same id have the same address and term, or a
    later term: that of a replica that was promoted.
    """
    mine, known = live.registration, other.registration
    return (live.user, mine.cluster, mine.store) == (other.user, known.cluster, known.store) and (
        mine.broker_id != known.broker_id
        or mine.term > known.term
        or (mine.term, mine.address) == (known.term, known.address)
    )


def _broker_data(by_id: dict[int, _Live]) -> BrokerData:
    leader = by_id[min(by_id)].registration
    addresses = {number: by_id[number].registration.address for number in sorted(by_id)}
    return BrokerData(leader.cluster, leader.broker, addresses, leader.data_version)


def _check(registration: Registration) -> None:
    is_valid = (
        _is_name(registration.cluster)
        and _is_name(registration.broker)
        and (not registration.store or _is_name(registration.store))
        and min(registration.broker_id, registration.data_version) >= 0
    )
    if not is_valid:
        raise _invalid(
            registration, "needs a cluster, a name, and an id and a data version of at least 0"
        )
    for topic in registration.topics:
        if not _is_topic(topic):
            raise _invalid(registration, f"has an invalid topic, {topic.name[:_MAX_CHARACTERS]!r}")
    check_advertised(registration.address)


def _is_topic(topic: TopicData) -> bool:
    return (
        _is_name(topic.name, _MAX_TOPIC_CHARACTERS)
        and 0 <= topic.perm <= PERM_READ | PERM_WRITE | PERM_INHERIT
        and all(0 <= count <= _MAX_QUEUES for count in (topic.read_queues, topic.write_queues))
        and (not topic.message_type or _is_name(topic.message_type))
    )


def _is_name(name: str, most: int = _MAX_CHARACTERS) -> bool:
    """Whether a name is printable, of limited length, and no path."""
    is_path = bool({"/", "\\"} & {*name}) or name in (".", "..")
    return 0 < len(name) <= most and name.isprintable() and not is_path


def _invalid(registration: Registration, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the registration of the broker {registration.broker[:_MAX_CHARACTERS]!r} {what}.",
        remedy="Names have printable characters other than / and \\. Use a broker of the"
        " same release as the name server.",
        code="REGISTRATION_INVALID",
    )


def _succeeded(promoted: Registration) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"this broker was the primary of {promoted.broker} before {promoted.address} was promoted.",
        remedy="Make this one its replica: --replica-of. If the promoted broker is lost for good,"
        " restart the name servers: they know it until then.",
        code="BROKER_NAME_TAKEN",
    )


def _taken(known: Registration) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"a broker named {known.broker} with the id {known.broker_id} is registered at"
        f" {known.address}.",
        remedy="Stop that broker, or give one of them another name: --broker-name, before its"
        " store is created.",
        code="BROKER_NAME_TAKEN",
    )
