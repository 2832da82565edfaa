"""`RemoteBrokers`: the brokers of a cluster by name, and their notifications."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyrocket.base.credentials import Credentials
from pyrocket.base.failures import Failures
from pyrocket.errors import PyrocketError, TopicNotFoundError, TransportError
from pyrocket.remote.broker import CALL_S, RemoteBroker
from pyrocket.remote.lookup import AddressUrl, RouteLookup
from pyrocket.values.admin import TopicConfig
from pyrocket.values.routes import PRIMARY, TopicSettings
from pyrocket.values.source import Hello
from pyrocket.wire.channel import SERVICE
from pyrocket.wire.messages import value_of

_CONNECT_S = 5
_CREATE_S = 1
_AGAIN_S = 1
"""The time in which an address may answer that has not answered while others have."""

_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 20.0

_Received = Callable[[Any], None]
"""Called with a notification; with None after notifications may have been lost."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Watch:
    received: _Received
    request: dict[str, str]
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    def cancel(self) -> None:
        for task in self.tasks.values():
            task.cancel()


class Notifications:
    """The streams of one transport, from every broker for every watch. Used by one event loop."""

    def __init__(self, broker: Callable[[str], RemoteBroker]) -> None:
        """`broker` returns a broker by name."""
        self._broker = broker
        self._names, self._failures = set[str](), Failures()
        self._watches: set[_Watch] = set()

    def watch(self, received: _Received, **request: str) -> Callable[[], None]:
        """Follow the notifications that `request` names; return a function to stop."""
        watch = _Watch(received, request)
        self._watches.add(watch)
        for name in self._names:
            self._follow(watch, name)

        def stop() -> None:
            self._watches.discard(watch)
            watch.cancel()

        return stop

    def add(self, broker: str) -> None:
        """Follow a broker that is new, or has a new address."""
        self._names.add(broker)
        for watch in self._watches:
            if broker in watch.tasks:
                watch.tasks[broker].cancel()
            self._follow(watch, broker)

    def remove(self, broker: str) -> None:
        """Stop following a broker."""
        self._names.discard(broker)
        for watch in self._watches:
            if (task := watch.tasks.pop(broker, None)) is not None:
                task.cancel()

    def close(self) -> None:
        """Stop following all brokers."""
        for watch in self._watches:
            watch.cancel()

    def _follow(self, watch: _Watch, broker: str) -> None:
        watch.tasks[broker] = asyncio.ensure_future(self._repeat(watch, broker))

    async def _repeat(self, watch: _Watch, broker: str) -> None:
        """Read a stream, and open it again whenever it ends."""
        pause, failed = _PAUSE_S, f"the notifications of {broker} are followed again"
        while True:
            try:
                async for notification in self._broker(broker).stream(
                    "Notifications", **watch.request
                ):
                    pause = _PAUSE_S
                    watch.received(notification)
                    self._failures.rounds.succeeded(failed)
            except PyrocketError as error:
                _log.info("the notifications of %s are followed again later: %s", broker, error)
            except Exception as error:
                self._failures.task(failed, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            watch.received(None)


class RemoteBrokers:
    """Finds brokers, and the topics that they have. Used by one event loop."""

    def __init__(self, addresses: Sequence[str] | AddressUrl, credentials: Credentials) -> None:
        """The addresses are those of brokers or of name servers: the answer to the first call shows
        which.
        """
        self._addresses, self._credentials = addresses, credentials
        self._opened: dict[str, RemoteBroker] = {}
        self._hellos: dict[str, Hello] = {}
        self._address_of: dict[str, str] = {}
        self._ordered: dict[str, dict[str, TopicConfig]] = {}
        self._lookup: RouteLookup | None = None
        self._routed: dict[str, set[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._notifications = Notifications(self.get)
        self.watch = self._notifications.watch

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
            for name, address in (await asyncio.to_thread(self._lookup.brokers)).items():
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
            return await self._routed_topics(self._lookup, topic)
        await self.find()
        names = self.names
        topics = await asyncio.gather(*(self._topic(name, topic) for name in names))
        live = {n: config for n, config in zip(names, topics, strict=True) if config is not None}
        return TopicSettings(live, self._gone(topic, live))

    async def _routed_topics(self, lookup: RouteLookup, topic: str) -> TopicSettings:
        """Return what a name server knows of a topic, and what it has forgotten by a restart."""
        ask = partial(lookup.route, topic)
        route = await asyncio.to_thread(ask)
        known = {queues.broker for queues in (*route.queues, *route.gone)}
        if forgotten := self._gone(topic, known):
            registered: Collection[str] = ()
            with suppress(TransportError):  # No name server answers.
                registered = await asyncio.to_thread(lookup.brokers)
            route = await asyncio.to_thread(ask)  # A broker may have registered in the meantime.
            for name in forgotten.keys() & registered:
                self._remember(topic, name, None)
        for broker in route.brokers:
            self._locate(broker.name, broker.addresses[PRIMARY])
        for queues in (*route.gone, *route.queues):
            self._remember(topic, queues.broker, queues.topic)
        live = {queues.broker: queues.topic for queues in route.queues}
        reported = {queues.broker for queues in route.gone}
        gone = self._gone(topic, live)
        # A broker that the name server does not know may run, and register soon.
        self._forget_gone(topic, live.keys() | (gone.keys() - reported))
        return TopicSettings(live, gone)

    def _remember(self, topic: str, broker: str, settings: TopicConfig | None) -> None:
        """Keep the settings of an ordered topic at a broker, in case that it goes."""
        known = self._ordered.setdefault(topic, {})
        known.pop(broker, None)
        if settings is not None and settings.ordered:
            known[broker] = settings

    def _gone(self, topic: str, known: Collection[str]) -> dict[str, TopicConfig]:
        """Return the settings of an ordered topic at the brokers that are not `known`."""
        ordered = self._ordered.get(topic, {})
        return {name: topic for name, topic in ordered.items() if name not in known}

    async def create(self, topic: str) -> Mapping[str, TopicConfig]:
        """Create a missing topic at all brokers that allow it; return its settings by broker.

        Raises the error of a broker if none of them has created it within a second.
        """
        await self.find()
        names = self.names
        results = await asyncio.gather(*(self._create(name, topic) for name in names))
        created = {
            name: config
            for name, config in zip(names, results, strict=True)
            if type(config) is TopicConfig
        }
        errors = [result for result in results if isinstance(result, PyrocketError)]
        if errors and not created:
            raise min(errors, key=lambda error: isinstance(error, TransportError))
        return created

    async def _create(self, broker: str, topic: str) -> TopicConfig | PyrocketError:
        """Create a missing topic at a broker; return its settings, or why it is not created."""
        try:
            call = self.get(broker).call("CreateMissing", name=topic)
            reply = await asyncio.wait_for(call, _CREATE_S)
        except asyncio.TimeoutError:
            why: PyrocketError = TransportError(
                f"the broker {broker} has not created the topic {topic!r} within {_CREATE_S} s.",
                remedy="Check that the broker runs and can be reached.",
                repeat_is_safe=True,
            )
        except PyrocketError as error:
            why = error
        else:
            return value_of(reply, TopicConfig)
        _log.warning("the topic %s is not created at %s: %s", topic, broker, why)
        return why

    async def close(self) -> None:
        """Disconnect."""
        self._notifications.close()
        for broker in self._opened.values():
            await broker.close()
        if self._lookup is not None:
            await asyncio.to_thread(self._lookup.close)

    async def _greet_all(self) -> None:
        """Make the first call to each address that has not answered one.

        Raises the error of the last address if no address has answered.
        """
        seconds = _AGAIN_S if self._hellos else _CONNECT_S
        new = [address for address in await self._current() if address not in self._hellos]
        calls = (self._at(address).hello(seconds) for address in new)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for address, answer in zip(new, answers, strict=True):
            if getattr(answer, "code", "") == "PROTOCOL_UNKNOWN":
                self._lookup = RouteLookup(self._addresses, self._credentials)
                return
            if not isinstance(answer, BaseException):
                self._hellos[address] = answer
                self._locate(answer.broker, address)
            elif not isinstance(answer, TransportError):
                raise answer
        errors = [answer for answer in answers if isinstance(answer, TransportError)]
        if errors and not self._hellos:
            raise errors[-1]

    async def _current(self) -> Sequence[str]:
        if isinstance(self._addresses, AddressUrl):
            return await asyncio.to_thread(self._addresses.current)
        return self._addresses

    async def _topic(self, broker: str, topic: str) -> TopicConfig | None:
        """Return a topic of a broker; None if the broker does not have it, or cannot be reached
        while others can.
        """
        try:
            reply = await self.get(broker).call("Topic", SERVICE, CALL_S, name=topic)
        except TopicNotFoundError:
            self._remember(topic, broker, None)
            return None
        except TransportError as error:
            if len(self._address_of) == 1:
                raise
            _log.warning("the queues of %s at %s are left out: %s", topic, broker, error)
            return None
        settings = value_of(reply, TopicConfig)
        self._remember(topic, broker, settings)
        return settings

    def _locate(self, broker: str, address: str) -> None:
        before = self._address_of.get(broker)
        if before != address:
            self._address_of[broker] = address
            self._disconnect(before)
            self._notifications.add(broker)

    def _forget_gone(self, topic: str, brokers: set[str]) -> None:
        """Forget the addresses of brokers that were in the route of a topic and are now in none."""
        gone = self._routed.get(topic, set()) - brokers
        self._routed[topic] = brokers
        for name in gone.difference(*self._routed.values()) & self._address_of.keys():
            self._disconnect(self._address_of.pop(name))
            self._notifications.remove(name)

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
