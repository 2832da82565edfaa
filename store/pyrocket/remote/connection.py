"""The channel to a broker: addresses, TLS, credentials, and the first call."""

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import grpc

from pyrocket.base.allocator import keep_blocks
from pyrocket.base.clock import system_clock
from pyrocket.base.credentials import CallMetadata, Credentials
from pyrocket.base.versions import PROTOCOL, RELEASE
from pyrocket.errors import PyrocketError, StoreNotSharedError, TransportError, UnsupportedError
from pyrocket.values.source import Hello
from pyrocket.wire.channel import method_of, open_channel
from pyrocket.wire.messages import value_of
from pyrocket.wire.tls_errors import date_remedy

_CLOCK_DIFFERENCE_S = 5
_DISTRUSTED = "CERTIFICATE_VERIFY_FAILED", "Hostname Verification", "not in peer certificate"
_UNANSWERED = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
_log = logging.getLogger(__name__)


class _OpenChannels:
    """The channels of this process; they are closed when the interpreter exits.

    When a channel is garbage-collected, grpcio waits for the channel's calls. While the interpreter
    exits, the daemon threads that would end these calls no longer run, so that an open call could
    block the process for ever. For the same reason, threads cannot open new channels then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pids: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._exiting_pid = 0
        atexit.register(self.close)

    def open(self, credentials: "Credentials", address: str) -> Any:
        """Return a new channel. Raises ValueError, as a closed channel does, during the exit."""
        with self._lock:
            if self._exiting_pid == os.getpid():
                raise ValueError("The interpreter exits.")
            channel = open_channel(credentials, address)
            self._pids[channel] = os.getpid()
            return channel

    def close(self) -> None:
        """Close all channels, and wait for their calls to end."""
        with self._lock:
            self._exiting_pid = os.getpid()
            channels = [channel for channel, pid in self._pids.items() if pid == os.getpid()]
        for channel in channels:
            channel.close()


_channels = _OpenChannels()


class Connection:
    """The channel of this process to the first address that works. Safe to share between threads.

    The first call on a channel is Hello. All addresses must lead to the same store.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        credentials: Credentials = Credentials(),  # noqa: B008 - it cannot be changed
        name: str = "",
        find: Callable[[], str] | None = None,
    ) -> None:
        """`name` is the name of the broker, if it is known, for errors.

        `find` returns the broker's present address, or an empty string; it is asked when a channel
        has failed: a promoted replica has another address than its primary had.
        """
        self.find = find
        self._addresses = [addresses] if isinstance(addresses, str) else [*addresses]
        self._credentials, self._name = credentials, name
        self._lock = threading.RLock()
        self._channel: Any = None
        self._pid = self._at = 0
        self._greeted = self.was_greeted = False
        self._store: str | None = None
        keep_blocks()

    @property
    def address(self) -> str:
        """The address in use."""
        return self._addresses[self._at]

    @property
    def left(self) -> int:
        """The number of addresses from the one in use on."""
        return len(self._addresses) - self._at

    @property
    def place(self) -> str:
        """The name of the broker, if it is known, and the address in use."""
        return f"{self._name} at {self.address}".lstrip()

    @property
    def channel(self) -> Any:
        """The channel, which connects when it is first used."""
        with self._lock:
            if self._channel is None or self._pid != os.getpid():
                self._channel = _channels.open(self._credentials, self.address)
                self._pid, self._greeted = os.getpid(), False
            return self._channel

    @property
    def metadata(self) -> CallMetadata:
        """The metadata that authenticates a call made now."""
        return self._credentials.metadata()

    def date_remedy(self, error: Any) -> str:
        """Return what to do if the broker's certificate has expired; see `date_remedy`."""
        return date_remedy(error, self.address, self._credentials.ca)

    def greeted(self, seconds: float, *, waits: bool = False) -> Any:
        """Return the channel; make the first call on it if that has not been made.

        With `waits` and a single address, the first call waits until the broker can be reached.
        If there may be another address, the caller tries that one instead.

        Raises grpc.RpcError, TransportError, UnsupportedError, StoreNotSharedError.
        """
        with self._lock:
            channel = self.channel
            if not self._greeted:
                self._greet(channel, seconds, waits and not self.find and len(self._addresses) == 1)
                self._greeted = self.was_greeted = True
            return channel

    def try_next(self, failed: Any, *, silent: bool = False) -> bool:
        """After a channel has failed, switch to the next address and repeat the first call there.

        With `silent`, a single address gets a new channel, too; otherwise its channel reconnects.
        Returns False after the last address: then the first address is next.
        """
        present = self.find() if self.find else ""
        with self._lock:
            if failed is not self._channel:
                return False
            self._greeted = False
            if present not in ("", *self._addresses):
                self._addresses, self._at, self._channel = [present], 0, None
                return True
            if len(self._addresses) == 1 and not silent:
                return False
            self._channel = None  # Left open: other threads may still use the channel.
            self._at = (self._at + 1) % len(self._addresses)
            return self._at != 0

    def close(self) -> None:
        """Close the channel; a later call opens a new one."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None and self._pid == os.getpid():
            channel.close()

    def _greet(self, channel: Any, seconds: float, waits: bool) -> None:
        method, request, reply = method_of("Hello")
        sent = request(release=RELEASE, protocol=PROTOCOL).SerializeToString()
        try:
            data = channel.unary_unary(method)(
                sent, timeout=seconds, metadata=self.metadata, wait_for_ready=waits
            )
        except grpc.RpcError as error:
            if error.code() not in _UNANSWERED:
                raise
            raise unreachable(self.place, "Hello", error, repeat_is_safe=True) from None
        hello = value_of(reply.FromString(data), Hello)
        self._check(hello)
        difference_s = (system_clock() - hello.now_ms) / 1000
        if abs(difference_s) > _CLOCK_DIFFERENCE_S:
            _log.warning(
                "the clocks of this machine and of the broker at %s differ by %.0f s; the broker's"
                " clock is used",
                self.address,
                difference_s,
            )

    def _check(self, hello: Hello) -> None:
        check_protocol(hello, self.address)
        if self._store not in (None, hello.store):
            raise StoreNotSharedError(
                f"The broker at {self.address} serves the store {hello.store or 'without an id'},"
                f" but the previous broker served {self._store}.",
                remedy="Name only addresses of one broker.",
            )
        self._store = hello.store


def check_protocol(hello: Hello, address: str) -> None:
    """Raise UnsupportedError (PROTOCOL_NEWER) unless a broker has the protocol of this release."""
    if hello.protocol != PROTOCOL:
        raise UnsupportedError(
            f"The broker at {address} is pyrocket {hello.release} with protocol"
            f" {hello.protocol}; this is {RELEASE} with protocol {PROTOCOL}.",
            remedy="Use the same release on both sides.",
            code="PROTOCOL_NEWER",
        )


def is_distrusted(error: Any) -> bool:
    """Whether a connection failed because the broker's certificate is not trusted, or has another
    name.
    """
    return any(text in (error.details() or "") for text in _DISTRUSTED)


def is_silent(error: Any) -> bool:
    """Whether a call got no answer within its time, so that its connection may be dead."""
    return error.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def unreachable(
    place: str, call: str, error: Any, *, repeat_is_safe: bool, dates: str = ""
) -> PyrocketError:
    """Return the error for a call that was not answered, or that the broker does not implement.

    `dates` is the `date_remedy` of the error.
    """
    if "too_many_pings" in (error.details() or "").lower().replace(" ", "_"):
        _log.warning(
            "the server %s, or a proxy before it, has closed the connection because of keepalive"
            " pings (too_many_pings); allow one ping every 10 s there",
            place,
        )
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return _missing(place, call)
    if is_distrusted(error):
        remedy = dates or (
            "Set `endpoint.ca` to the CA certificate of the broker, and use the host name in its"
            " certificate, or set `endpoint.serverName` to that name"
        )
    else:
        remedy = (
            "Check that the broker runs and can be reached, and that `endpoint.tls` is correct; a"
            " cluster of Apache RocketMQ is read with `namesrv`"
        )
    return TransportError(
        f"The broker {place} did not answer {call}: {error.code().name}, {error.details()}.",
        remedy=f"{remedy}. `pyrocket doctor --endpoint` checks each step.",
        repeat_is_safe=repeat_is_safe,
    )


def _missing(place: str, call: str) -> UnsupportedError:
    if call == "Hello":
        return UnsupportedError(
            f"The gRPC server {place} is not a pyrocket broker.",
            remedy="Use the address of a `pyrocket broker`.",
            code="PROTOCOL_UNKNOWN",
        )
    return UnsupportedError(
        f"The broker {place} does not implement {call}: its release is older than"
        f" {RELEASE}, the release of this client.",
        remedy="Use the same release on both sides.",
        code="PROTOCOL_OLDER",
    )
