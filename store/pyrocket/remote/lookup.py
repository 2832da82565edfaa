"""Finds the brokers of topics through name servers, and tells name servers from brokers."""

import logging
import random
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

import grpc

from pyrocket.base.arguments import parse_addresses
from pyrocket.base.credentials import Credentials
from pyrocket.errors import OptionError, PyrocketError, TransportError, UnsupportedError
from pyrocket.remote.connection import Connection
from pyrocket.values.routes import BrokerData, Route, primaries
from pyrocket.wire.channel import NAME_SERVER, method_of
from pyrocket.wire.errors import call_error
from pyrocket.wire.messages import fill, value_of

URL_REFRESH_S = 120
_TIMEOUT_S = 3
_MAX_BYTES = 65_536
OTHER_SERVER = "PROTOCOL_UNKNOWN"
"""The code of a first call that a gRPC server which is no broker has answered."""

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)


class AddressUrl:
    """The addresses of name servers in a text at a URL, as for `rocketmq.namesrv.domain`."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds. Raises OptionError (ADDRESS_INVALID)."""
        if not re.match("https?://", url):
            raise OptionError(
                f"{url!r} is not a URL.", remedy="Use http:// or https://.", code="ADDRESS_INVALID"
            )
        self._url, self._clock, self._read_s = url, clock, 0.0
        self._addresses: tuple[str, ...] = ()

    def current(self) -> tuple[str, ...]:
        """Return the addresses, which are read again after 2 minutes.

        After a failure, the old addresses remain in use; without old addresses, OptionError
        (ADDRESS_INVALID) or TransportError is raised.
        """
        if not self._addresses or self._clock() - self._read_s >= URL_REFRESH_S:
            self._read_s = self._clock()
            try:
                self._addresses = parse_addresses(self._fetch())
            except PyrocketError as error:
                if not self._addresses:
                    raise
                _log.warning("the old addresses of name servers remain in use: %s", error)
        return self._addresses

    def _fetch(self) -> str:
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as reply:
                return str(reply.read(_MAX_BYTES).decode())
        except (OSError, ValueError) as error:
            raise TransportError(
                f"{self._url} cannot be read: {error}.",
                remedy="Check the URL with the addresses of name servers.",
                repeat_is_safe=True,
            ) from None


class RouteLookup:
    """Asks one name server for routes, and the next one if it fails. Safe to share between threads.

    The order of the name servers is random for each object, so that clients spread over them.
    """

    def __init__(
        self, addresses: Sequence[str] | AddressUrl, credentials: Credentials | None = None
    ) -> None:
        self._source, self._credentials = addresses, credentials or Credentials()
        self._lock = threading.Lock()
        self._known: tuple[str, ...] = ()
        self._connection: Connection | None = None
        self._routes: dict[str, Route] = {}

    def route(self, topic: str) -> Route:
        """Return the route of a topic; it has no brokers if no live broker has the topic.

        While no name server answers, the last route remains in use; without a last route,
        TransportError is raised. Also raises the errors that a name server reports.
        """
        with self._lock:
            known = self._routes.get(topic, Route(topic))
            try:
                (known,) = self._ask("Routes", list[Route], topics=[topic])
            except TransportError:
                if not known.brokers:
                    raise
            self._routes[topic] = known
            return known

    def brokers(self) -> dict[str, str]:
        """Return the addresses of the live primaries by name; see `all_brokers`."""
        return primaries(self.all_brokers())

    def all_brokers(self) -> dict[str, dict[int, str]]:
        """Return the addresses of the live brokers by name and id.

        Asks on each call. Raises TransportError, and the errors that a name server reports.
        """
        with self._lock:
            return {data.name: data.addresses for data in self._ask("Brokers", list[BrokerData])}

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _connected(self) -> Connection:
        """Return the connection; a new one if the addresses have changed."""
        source = self._source
        addresses = source.current() if isinstance(source, AddressUrl) else (*source,)
        if self._connection is None or addresses != self._known:
            if self._connection is not None:
                self._connection.close()
            shuffled = random.sample(addresses, len(addresses))
            self._connection, self._known = Connection(shuffled, self._credentials), addresses
        return self._connection

    def _ask(self, call: str, kind: type[_Value], **arguments: Any) -> _Value:
        """Call one name server after the other, until one answers."""
        connection = self._connected()
        attempts = len(self._known)
        while True:
            try:
                return _answer(connection, call, kind, arguments)
            except TransportError:  # noqa: PERF203 - the loop is for the errors
                connection.try_next(connection.channel, silent=True)
                attempts -= 1
                if not attempts:
                    raise


def _answer(
    connection: Connection, call: str, kind: type[_Value], arguments: Mapping[str, Any]
) -> _Value:
    method, request, reply = method_of(call, NAME_SERVER)
    sent = fill(request(), arguments).SerializeToString()
    try:
        answer: Any = connection.channel.unary_unary(method)(
            sent, timeout=_TIMEOUT_S, metadata=connection.metadata
        )
    except grpc.RpcError as error:
        dates = connection.date_remedy(error)
        raise call_error(connection.address, call, error, dates) from None
    return value_of(reply.FromString(answer), kind)


def is_broker(greet: Callable[[], object]) -> bool:
    """Whether a broker answers its first call, `greet`, or another gRPC server.

    Raises the other errors of the call.
    """
    try:
        greet()
    except UnsupportedError as error:
        if error.code != OTHER_SERVER:
            raise
        return False
    return True


def live_brokers(addresses: Sequence[str], credentials: Credentials) -> dict[str, dict[int, str]]:
    """Return the addresses of the live brokers by name and id, as name servers know them.

    Raises UnsupportedError (PROTOCOL_UNKNOWN) for addresses of other servers, TransportError.
    """
    with closing(RouteLookup(addresses, credentials)) as lookup:
        try:
            return lookup.all_brokers()
        except UnsupportedError:
            raise UnsupportedError(
                f"The gRPC server at {','.join(addresses)} is neither a pyrocket broker nor a name"
                " server.",
                remedy="Use the address of a `pyrocket broker` or a `pyrocket nameserver`.",
                code=OTHER_SERVER,
            ) from None
