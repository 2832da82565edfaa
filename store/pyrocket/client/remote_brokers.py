"""`RemoteBrokers`: the brokers of a cluster by name."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyrocket.client.remote_broker import BROKER, CALL_S, RemoteBroker
from pyrocket.errors import (
    PyrocketError,
    TopicNotFoundError,
    TransportError,
    UnsupportedError,
)
from pyrocket.metadata.topics import TopicConfig
from pyrocket.nameserver.route_table import TopicData
from pyrocket.rpc.connection import Credentials
from pyrocket.rpc.messages import values_of
from pyrocket.rpc.nameserver.lookup import AddressUrl, RouteLookup

if TYPE_CHECKING:
    from pyrocket.rpc.proto.pyrocket_pb2 import HelloReply

_CONNECT_S = 5

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class TopicSettings(NamedTuple):
    """The settings of a topic by broker.

    Attributes:
        live: At the live brokers.
        gone: For an ordered topic, at brokers that are gone. Without a name server, only brokers
            that this client has reached are known.
    """

    live: Mapping[str, TopicConfig | TopicData]
    gone: Mapping[str, TopicConfig | TopicData]


class RemoteBrokers:
    """Finds brokers, and the topics that they have. Used by one event loop."""

    def __init__(self, addresses: Sequence[str] | AddressUrl, credentials: Credentials) -> None:
        """The addresses are those of brokers or of name servers: the answer to the first call shows
        which.
        """
        self._addresses, self._credentials = addresses, credentials
        self._opened: dict[str, RemoteBroker] = {}
        self._hellos: dict[str, HelloReply] = {}
        self._address_of: dict[str, str] = {}
        self._ordered: dict[tuple[str, str], TopicConfig] = {}
        self._lookup: RouteLookup | None = None
        self._routed: dict[str, set[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._added: Callable[[str], None] = lambda name: None
        self._removed: Callable[[str], None] = lambda name: None

    def follow(self, added: Callable[[str], None], removed: Callable[[str], None]) -> None:
        """Call `added` with each known broker, and with each that is new or has a new address.

        `removed` is called with each broker that no route contains any longer.
        """
        self._added, self._removed = added, removed
        for name in self.names:
            added(name)

    @property
    def names(self) -> list[str]:
        """The sorted names of all known brokers."""
        return sorted(self._address_of)

    async def find(self) -> None:
        """Find all live brokers.

        Raises TransportError if no address can be reached, UnsupportedError, NotAuthenticatedError.
        """
        if self._lookup is None:
            await self._greet_all()
        if self._lookup is not None:
            for name, address in (await _blocking(self._lookup.brokers)).items():
                self._locate(name, address)

    def get(self, name: str) -> RemoteBroker:
        """Return a broker by name; "" is the only one. Raises TransportError if it is unknown."""
        if not name and len(self._address_of) == 1:
            (name,) = self._address_of
        address = self._address_of.get(name)
        if address is None:
            raise TransportError(
                f"the address of the broker {name!r} is unknown.",
                remedy="Check that it runs, and that it is registered with the name servers.",
                repeat_is_safe=True,
            )
        return self._at(address)

    async def topics(self, topic: str) -> TopicSettings:
        """Return the settings of a topic at all brokers that have it.

        Raises TransportError if none of them can be reached.
        """
        if self._lookup is not None:
            found = await _blocking(partial(self._lookup.route, topic, fresh=True))
            for broker in found.brokers:
                self._locate(broker.name, broker.addresses[min(broker.addresses)])
            self._forget_gone(topic, {broker.name for broker in found.brokers})
            return TopicSettings(
                *({q.broker: q.topic for q in s} for s in (found.queues, found.gone))
            )
        await self.find()
        topics = await asyncio.gather(*(self._topic(name, topic) for name in self.names))
        live = {n: one for n, one in zip(self.names, topics, strict=True) if one is not None}
        known = {n: one for (name, n), one in self._ordered.items() if name == topic}
        return TopicSettings(live, {n: one for n, one in known.items() if n not in live})

    async def default_queues(self) -> Mapping[str, int]:
        """Return the brokers that create missing topics, with the number of queues of a new one."""
        await self.find()
        for address in {*self._address_of.values()} - self._hellos.keys():
            await self._greet(address)
        hellos = {name: self._hellos[address] for name, address in self._address_of.items()}
        return {name: one.default_queues for name, one in hellos.items() if one.auto_create_topics}

    async def close(self) -> None:
        """Disconnect."""
        for broker in self._opened.values():
            await broker.close()
        if self._lookup is not None:
            await _blocking(self._lookup.close)

    async def _greet_all(self) -> None:
        """Make the first call to each address that has not answered one.

        Raises the error of the last address if no address has answered.
        """
        failure: PyrocketError | None = None
        for address in await self._current():
            if address in self._hellos:
                continue
            try:
                hello = await self._greet(address)
            except UnsupportedError as error:
                if error.code != "PROTOCOL_UNKNOWN":
                    raise
                self._lookup = RouteLookup(self._addresses, self._credentials)
                return
            except TransportError as error:
                failure = error
                continue
            self._locate(hello.broker, address)
        if failure is not None and not self._hellos:
            raise failure

    async def _greet(self, address: str) -> "HelloReply":
        self._hellos[address] = hello = await self._at(address).hello(_CONNECT_S)
        return hello

    async def _current(self) -> Sequence[str]:
        if isinstance(self._addresses, AddressUrl):
            return await _blocking(self._addresses.current)
        return self._addresses

    async def _topic(self, broker: str, topic: str) -> TopicConfig | None:
        """Return a topic of a broker; None if the broker does not have it, or cannot be reached
        while others can.
        """
        try:
            reply = await self.get(broker).call("Topic", BROKER, CALL_S, name=topic)
        except TopicNotFoundError:
            self._ordered.pop((topic, broker), None)
            return None
        except TransportError as error:
            if len(self._address_of) == 1:
                raise
            _log.warning("the queues of %s at %s are left out: %s", topic, broker, error)
            return None
        found: TopicConfig = values_of(reply, {"value": TopicConfig})["value"]
        self._ordered.pop((topic, broker), None)
        if found.ordered:
            self._ordered[topic, broker] = found
        return found

    def _locate(self, broker: str, address: str) -> None:
        before = self._address_of.get(broker)
        if before != address:
            self._address_of[broker] = address
            self._disconnect(before)
            self._added(broker)

    def _forget_gone(self, topic: str, brokers: set[str]) -> None:
        """Forget the brokers that were in the route of a topic and are now in no route."""
        gone = self._routed.get(topic, set()) - brokers
        self._routed[topic] = brokers
        for name in gone.difference(*self._routed.values()) & self._address_of.keys():
            self._disconnect(self._address_of.pop(name))
            self._removed(name)

    def _disconnect(self, address: str | None) -> None:
        """Close the connections to an address that no broker has any longer."""
        if address is None or address in self._address_of.values():
            return
        if (opened := self._opened.pop(address, None)) is not None:
            closing = asyncio.ensure_future(opened.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _at(self, address: str) -> RemoteBroker:
        if address not in self._opened:
            self._opened[address] = RemoteBroker(address, self._credentials)
        return self._opened[address]


async def _blocking(call: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(None, call)
