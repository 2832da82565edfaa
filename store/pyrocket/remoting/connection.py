"""The connections to one server, a name server or a broker: TLS, signatures, other protocols.

A connection belongs to one thread at a time, which sends several requests and then reads their
answers; there is no thread that reads. A caller that fails, or stops between request and answer,
loses only its connection. Source: `NettyRemotingClient`, `AclClientRPCHook`, `AclUtils`.
"""

import base64
import hmac
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, islice
from typing import TypeVar

from pyrocket.base.allocator import keep_blocks
from pyrocket.base.arguments import parse_address
from pyrocket.base.credentials import Credentials
from pyrocket.errors import OptionError, PyrocketError, TransportError, UnsupportedError
from pyrocket.remoting.calls import SEND_CODES, ServerCall
from pyrocket.remoting.frame_reader import FrameReader
from pyrocket.remoting.frames import Frame, FrameError, encode_head

CONNECT_S = 3.0
"""The longest time to connect, as in RocketMQ's clients."""

_KEPT = 2
"""How many unused connections a pool keeps."""

_COPIED_BYTES = 1 << 16
"""Requests of less are sent by one call; longer ones without a copy."""

_LAST_OPAQUE = 2**31 - 1
_CHECK = (
    "Check that it runs and can be reached from this machine, and the settings of TLS. If a broker"
    " has another address here than the one it has registered, set `brokerAddresses`."
)
_PROTOCOLS = (
    (slice(4), b"HTTP", "it speaks HTTP", "Use the port of a name server, usually 9876."),
    (slice(2), b"\x15\x03", "it uses TLS, and the client does not", "Set TLS for this address."),
    (
        slice(3, 9),
        b"\x04\0\0\0\0\0",  # An HTTP/2 frame with SETTINGS.
        "it speaks gRPC",
        "For a broker or a name server of pyrocket use `endpoint`; a proxy is not supported.",
    ),
)
"""The first bytes of servers of other protocols, what they are, and the remedy."""

_Value = TypeVar("_Value")


def signed(credentials: Credentials, request: Frame) -> Frame:
    """Return the request with the user and the signature.

    It covers neither time nor connection: without TLS, an eavesdropper can repeat the request.
    """
    if not credentials.access_key:
        return request
    fields = {**request.fields, "AccessKey": credentials.access_key}
    values = "".join(fields[name] for name in sorted(fields))
    digest = hmac.digest(credentials.secret_key.encode(), values.encode() + request.body, "sha1")
    fields["Signature"] = base64.b64encode(digest).decode()
    return request._replace(fields=fields)


class RemotingConnection:
    """One connection. Belongs to one thread at a time.

    Every failure is a TransportError, which says whether the requests can be repeated, or an
    UnsupportedError if the server does not speak this protocol. The connection is then closed.
    """

    def __init__(self, address: str, credentials: Credentials, place: str, seconds: float) -> None:
        """Connect. `place` names the server in errors."""
        self.place, self._credentials = place, credentials
        self._reader, self._opaques = FrameReader(), count()
        self._waiting: dict[int, int] = {}
        self._frames: deque[Frame] = deque()
        host, port = parse_address(address)
        with self._failing(seconds, "the connection"):
            self._socket = socket.create_connection((host, port), seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if credentials.tls:
                name = credentials.server_name or host
                context = _tls_context(credentials)
                self._socket = context.wrap_socket(self._socket, server_hostname=name)

    @property
    def is_idle(self) -> bool:
        """Whether no answer is awaited, and the server has neither closed nor sent anything."""
        if self._waiting or self._frames or self._reader.begun or self._socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    @property
    def has_received(self) -> bool:
        """Whether the next answer is there already."""
        return bool(self._frames)

    def send(self, requests: Sequence[Frame], seconds: float) -> list[int]:
        """Send requests; return the number that the answer to each will have in `opaque`."""
        numbers = [number & _LAST_OPAQUE for number in islice(self._opaques, len(requests))]
        pieces = [
            piece
            for request, number in zip(requests, numbers, strict=True)
            for piece in (encode_head(signed(self._credentials, request), number), request.body)
        ]
        if sum(map(len, pieces)) < _COPIED_BYTES:
            pieces = [b"".join(pieces)]
        self._waiting.update(zip(numbers, (request.code for request in requests), strict=True))
        with self._failing(seconds, "to receive"):
            self._socket.settimeout(seconds)
            for piece in pieces:
                self._socket.sendall(piece)
        return numbers

    def receive(self, seconds: float) -> Frame:
        """Return the next answer to one of the requests that were sent."""
        end = time.monotonic() + seconds
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame.is_answer and self._waiting.pop(frame.opaque, None) is not None:
                    return frame
            with self._failing(seconds, "to answer"):
                self._fill(end - time.monotonic())

    def _fill(self, seconds: float) -> None:
        """Receive more bytes, and the frames that are complete with them."""
        self._socket.settimeout(max(seconds, 1e-3))
        room = self._reader.room()
        size = self._socket.recv_into(room)
        if not size:
            raise ConnectionError("it closed the connection")
        if not self._reader.begun:
            self._check_protocol(bytes(room[: min(size, 16)]))
        self._frames.extend(self._reader.received(size))

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError, AttributeError):  # Without a socket, it was never connected.
            self._socket.close()

    def _check_protocol(self, first: bytes) -> None:
        """Raise UnsupportedError if a frame begins like the bytes of another protocol."""
        for where, expected, what, remedy in _PROTOCOLS:
            if first[where] == expected:
                message = f"{self.place} is no RocketMQ server of this protocol: {what}."
                raise UnsupportedError(message, remedy=remedy, code="PROTOCOL_UNKNOWN")

    @contextmanager
    def _failing(self, seconds: float, what: str) -> Iterator[None]:
        """Close the connection after an error, and turn it into one with code and remedy."""
        try:
            yield
        except (OSError, FrameError) as error:
            self.close()
            raise self._error(error, seconds, what) from None
        except BaseException:
            self.close()
            raise

    def _error(self, error: Exception, seconds: float, what: str) -> PyrocketError:
        if isinstance(error, FrameError):
            return UnsupportedError(
                f"{self.place} sent {error}, not an answer.",
                remedy="Check that it is a broker or a name server of RocketMQ, at this port.",
                code="PROTOCOL_BROKEN",
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason = f"it took longer than {seconds:.3g} s"
        remedy = _tls_remedy(error) if isinstance(error, ssl.SSLError) else _CHECK
        is_safe = not {*SEND_CODES} & {*self._waiting.values()}  # They would store again.
        message = f"{self.place} failed {what}: {reason}."
        return TransportError(message, remedy=remedy, repeat_is_safe=is_safe)


class ConnectionPool:
    """The connections to one server. Safe to share between threads, and across a fork.

    Attributes:
        lost: How many connections were closed early or by the server, which may have restarted.
        broker_id: Of a broker: 0 for the master.
        slaves: Of a master: the ids of its live slaves.
        suggested_id: The id at which the last answer suggests to pull next.
    """

    broker_id = suggested_id = 0
    slaves: Collection[int] = ()

    def __init__(self, address: str, credentials: Credentials, name: str = "server") -> None:
        """`name` says what the server is, for errors: `broker broker-a`."""
        self.address, self.place = address, f"the RocketMQ {name} at {address}"
        self._credentials, self.lost = credentials, 0
        self._lock = threading.Lock()
        self._unused: list[RemotingConnection] = []
        self._pid = os.getpid()
        keep_blocks()

    @contextmanager
    def connection(self, seconds: float = CONNECT_S) -> Iterator[RemotingConnection]:
        """Yield a connection that no other thread uses; connect if there is none.

        It is kept for later callers unless answers are still awaited.
        """
        connection = self._take() or RemotingConnection(
            self.address, self._credentials, self.place, min(seconds, CONNECT_S)
        )
        try:
            yield connection
        finally:
            self._put(connection)

    def exchange(self, requests: Sequence[Frame], seconds: float) -> list[Frame]:
        """Send requests at once, and return their answers in the same order.

        Raises TransportError, UnsupportedError.
        """
        end = time.monotonic() + seconds
        answers: dict[int, Frame] = {}
        with self.connection(seconds) as connection:
            numbers = connection.send(requests, max(end - time.monotonic(), 0))
            while len(answers) < len(numbers):
                answer = connection.receive(max(end - time.monotonic(), 0))
                answers[answer.opaque] = answer
        return [answers[number] for number in numbers]

    def ask(self, calls: Sequence[ServerCall[_Value]], seconds: float) -> list[_Value]:
        """Make calls at once, and return their values in the same order.

        Raises the first error that the server reports; TransportError, UnsupportedError.
        """
        answers = self.exchange([call.request for call in calls], seconds)
        return [call.value(answer, self.place) for call, answer in zip(calls, answers, strict=True)]

    def close(self) -> None:
        """Close all connections that are not in use."""
        with self._lock:
            unused, self._unused = self._unused, []
        for connection in unused:
            connection.close()

    def _take(self) -> RemotingConnection | None:
        with self._lock:
            is_mine = self._pid == os.getpid()  # Otherwise, another process uses them.
            self._pid = os.getpid()
            while self._unused:
                connection = self._unused.pop()
                if is_mine and connection.is_idle:
                    return connection
                self.lost += 1
                connection.close()
        return None

    def _put(self, connection: RemotingConnection) -> None:
        with self._lock:
            is_idle = connection.is_idle
            if len(self._unused) < _KEPT and is_idle:
                self._unused.append(connection)
                return
            self.lost += not is_idle
        connection.close()


def _tls_context(credentials: Credentials) -> ssl.SSLContext:
    try:
        ca = credentials.ca.decode() if credentials.ca else None
        return ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise OptionError(
            f"the CA certificates cannot be read: {error}.",
            remedy="Name a file with certificates in PEM format.",
        ) from error


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "Trust the CA certificate of the cluster (`endpoint.ca`). If the certificates name no"
            " address, set `endpoint.serverName` to the name that they have."
        )
    return "Connect without TLS if the server does not use it (`tls.server.mode`)."
