"""QueryRoute and QueryAssignment: the queues of a topic, with the address used by the client."""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any

from pyrocket.base.arguments import parse_address
from pyrocket.broker.broker import Broker
from pyrocket.server.messaging.caller import Caller, no_route, readable_topic
from pyrocket.server.messaging.codes import RefusedError, status
from pyrocket.server.messaging.interface import new, number
from pyrocket.store import consumption_of
from pyrocket.values.admin import TopicConfig

ANY_QUEUE = -1
_MIXED = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class RouteCalls:
    """Implements the calls."""

    def __init__(self, broker: Broker) -> None:
        self._store = broker.store
        self._advertised, self._ports = None, frozenset[int]()

    def advertise(self, address: str, listens: Iterable[str]) -> None:
        """Set the address at which clients of name servers reach this broker."""
        self._advertised = endpoints_of(address)
        self._ports = frozenset(parse_address(place)[1] for place in (address, *listens))

    def query_route(self, request: Any, caller: Caller) -> Any:
        """Return one entry for each queue, ordered by queue id."""
        topic = caller.topic(request.topic)
        caller.admit("QueryRoute", [topic])
        check_endpoints(request.endpoints)
        config = self._config(topic)
        queues = self._queues(request, config, self.accepted(topic))
        return new("QueryRouteResponse", status=status("OK"), message_queues=queues)

    def query_assignment(self, request: Any, caller: Caller) -> Any:
        """Return what a push consumer polls: all queues of the topic as one queue.

        Each receive gets some of the messages. RocketMQ returns the queues one by one for FIFO
        groups, so that a client polls each of them; here, the broker keeps the order of a message
        group among all receives, and the queue of a receive is ignored.
        """
        topic, group = caller.topic(request.topic), caller.group(request.group)
        caller.admit("QueryAssignment", [topic], [group])
        check_endpoints(request.endpoints)
        config = readable_topic(consumption_of(self._store), topic)
        queue = self._queues(request, config)[0]
        queue.id = ANY_QUEUE
        queue.broker.endpoints.CopyFrom(self._reachable(request.endpoints))
        assignments = [new("Assignment", message_queue=queue)]
        return new("QueryAssignmentResponse", status=status("OK"), assignments=assignments)

    def _reachable(self, endpoints: Any) -> Any:
        """Return the endpoints in a request if they are this broker's, else the advertised ones.

        Some clients send the address of their name server.
        """
        if self._advertised is None or endpoints.addresses[0].port in self._ports:
            return endpoints
        return self._advertised

    def accepted(self, topic: str) -> tuple[str, ...]:
        """Return the types of messages that a topic accepts."""
        return accepted_types(self._store.topics.message_type(topic))

    def _config(self, topic: str) -> TopicConfig:
        """Return a topic. Raises TopicNotFoundError.

        With `auto_create_topics`, describe a missing topic as a send would create it.
        """
        config = self._store.config
        known = self._store.topics.all().get(topic)
        if known is None and config.auto_create_topics:
            return TopicConfig(topic, config.default_queues, config.default_queues)
        if known is None:
            raise no_route(topic)
        return known

    def _queues(self, request: Any, config: TopicConfig, accepted: Sequence[str] = ()) -> list[Any]:
        broker = new("Broker", name=self._store.broker_name, endpoints=request.endpoints)
        return [*message_queues(request.topic, broker, config, accepted)]


def message_queues(
    topic: Any, broker: Any, config: TopicConfig, accepted: Sequence[str]
) -> Iterator[Any]:
    """Yield the queues of a topic at one broker, ordered by id; each accepts these types."""
    types = [number("MessageType", name) for name in accepted]
    for queue_id in range(max(config.read_queues, config.write_queues)):
        permission = _permission(
            config.readable and queue_id < config.read_queues,
            config.writable and queue_id < config.write_queues,
        )
        yield new(
            "MessageQueue",
            topic=topic,
            id=queue_id,
            permission=permission,
            broker=broker,
            accept_message_types=types,
        )


def accepted_types(message_type: str) -> tuple[str, ...]:
    """Return the types of messages that a topic of this type accepts."""
    return _MIXED if message_type in ("", "MIXED") else (message_type,)


def endpoints_of(address: str) -> Any:
    """Return an address, such as broker.example:8081, as endpoints. Raises OptionError."""
    host, port = parse_address(address)
    try:
        scheme = f"IPv{ip_address(host).version}"
    except ValueError:
        scheme = "DOMAIN_NAME"
    addresses = [{"host": host, "port": port}]
    return new("Endpoints", scheme=number("AddressScheme", scheme), addresses=addresses)


def check_endpoints(endpoints: Any) -> None:
    """Reject a request without the address that the client used: the reply must contain it."""
    if not endpoints.scheme or not endpoints.addresses:
        raise RefusedError("ILLEGAL_ACCESS_POINT", "the request has no endpoints.")


def _permission(readable: bool, writable: bool) -> int:
    name = {(True, True): "READ_WRITE", (True, False): "READ", (False, True): "WRITE"}
    return number("Permission", name.get((readable, writable), "NONE"))
