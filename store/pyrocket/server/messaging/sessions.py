"""The connected clients: the topics that each publishes to, and the stream for check requests.

A session starts with the first call of a client. The client's stream may open later, or be
lost for minutes while the client continues to send.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pyrocket.server.messaging.delivered import message_of
from pyrocket.server.messaging.interface import new
from pyrocket.services.transactions.half_messages import CheckRequest

_Key = tuple[str, str]
"""User and client id."""

MAX_COMMANDS, MAX_BYTES = 2000, 8 << 20
"""Maximum pending commands of a client, and their bytes; further commands are not sent.

RocketMQ's clients keep up to 2,000 check requests, too.
"""

_IDLE_S = 300
_ALIVE_S = 35
"""Clients make a call every ten seconds."""

MAX_CLIENTS = 10_000
"""Maximum clients without a stream; clients with the oldest last call are removed first."""

MAX_TOPICS = 256
"""Maximum topics of one client; the topics that it published to most recently are kept."""

_LOOKS = 4
"""Number of clients that each call checks for expiry."""


class Stream:
    """The commands for one client, sent by the event loop. Any thread may call `offer`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._room, self._bytes = MAX_COMMANDS, 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """The number of further commands that the stream accepts."""
        return self._room if self._bytes < MAX_BYTES else 0

    def offer(self, command: Any) -> bool:
        """Send a command, or None to end the stream. Return False if too many are pending."""
        with self._lock:
            if self.room <= 0 and command is not None:
                return False
            self._room -= 1
            self._bytes += _size(command)
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, command)
        return True

    async def next(self) -> Any:
        """Return the next command; None ends the stream."""
        command = await self._waiting.get()
        with self._lock:
            self._room += 1
            self._bytes -= _size(command)
        return command


def _size(command: Any) -> int:
    return 0 if command is None else int(command.ByteSize())


@dataclass
class ClientSession:
    """One client.

    Attributes:
        language: A name in `Language`; empty until the client has sent its settings.
        topics: The topics that it publishes to; most recent last.
        group: The group that it consumes for.
        streams: The open streams, one for each address that the client uses; most recent last.
        settings: The reply to its last settings, if the client needs it again.
        polls: Functions that wake its parked polls.
        ended: Whether its streams and polls must end.
    """

    key: _Key
    language: str = ""
    topics: dict[str, None] = field(default_factory=dict)
    group: str = ""
    streams: list[Stream] = field(default_factory=list)
    settings: Any = None
    seen: float = 0.0
    polls: set[Callable[[], None]] = field(default_factory=set)
    ended: bool = False

    @property
    def stream(self) -> Stream | None:
        """The most recently opened stream, or None."""
        return self.streams[-1] if self.streams else None

    def end(self) -> None:
        """End its streams and its polls."""
        self.ended = True
        for wake in [*self.polls]:
            wake()
        for stream in [*self.streams]:
            stream.offer(None)


class Sessions:
    """All clients of a broker. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[_Key, ClientSession] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    def seen(self, key: _Key) -> ClientSession:
        """Return the session of a client that makes a call."""
        with self._lock:
            session = self._sessions.pop(key, None) or ClientSession(key)
            session.seen, session.ended = time.monotonic(), self._closed
            self._sessions[key] = session  # Ordered by the last call.
            self._expire()
        return session

    def find(self, key: _Key) -> ClientSession | None:
        """Return the session of a client; None if it is unknown."""
        return self._sessions.get(key)

    def sends_to(self, key: _Key, topic: str) -> None:
        """Record that a client sends to a topic, which its last settings may not list."""
        self.publishes(self.seen(key), [topic])

    def publishes(self, session: ClientSession, topics: Iterable[str]) -> None:
        """Record that a client publishes to these topics, of which at most MAX_TOPICS are kept."""
        with self._lock:
            for topic in topics:
                session.topics.pop(topic, None)
                session.topics[topic] = None
            while len(session.topics) > MAX_TOPICS:
                del session.topics[next(iter(session.topics))]

    def connect(self, key: _Key, stream: Stream) -> ClientSession:
        """Add a stream that a client has opened. Commands are sent on this stream from now on."""
        session = self.seen(key)
        with self._lock:
            session.streams.append(stream)
        if self._closed:
            stream.offer(None)
        return session

    def disconnect(self, session: ClientSession, stream: Stream) -> None:
        """Remove a stream that has ended."""
        with self._lock:
            session.streams.remove(stream)

    def end(self, key: _Key) -> None:
        """Remove a client that is shutting down."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            session.end()

    def is_connected(self, key: Hashable) -> bool:
        """Whether a client is connected or has made a call recently."""
        session = self._sessions.get(key)  # type: ignore[call-overload]
        if session is None:
            return False
        return bool(session.streams) or time.monotonic() - session.seen < _ALIVE_S

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for session in self._all():
            session.end()

    def topics(self) -> Collection[str]:
        """Return the topics that connected producers send to."""
        return {topic for session in self._all() if session.streams for topic in [*session.topics]}

    def room(self, topic: str) -> int:
        """Return the number of further check requests that the producers of a topic accept."""
        return sum(max(stream.room, 0) for stream in self.producers(topic))

    def ask(self, topic: str, request: CheckRequest) -> bool:
        """Send a check request to a producer of the topic; return False if none accepts it."""
        command = new(
            "RecoverOrphanedTransactionCommand",
            message=message_of(request.message, new("Resource", name=topic)),
            transaction_id=request.half.transaction_id,
        )
        sent = new("TelemetryCommand", recover_orphaned_transaction_command=command)
        streams = sorted(self.producers(topic), key=lambda stream: -stream.room)
        return any(stream.offer(sent) for stream in streams)

    def producers(self, topic: str) -> list[Stream]:
        """Return the streams of the clients that publish to a topic."""
        return [user.streams[-1] for user in self._all() if user.streams and topic in user.topics]

    def _all(self) -> list[ClientSession]:
        with self._lock:
            return [*self._sessions.values()]

    def _expire(self) -> None:
        """Remove clients that have no stream and have not made a call for a while.

        Only the first clients are checked; those with a stream are moved to the end.
        """
        oldest = time.monotonic() - _IDLE_S
        for key, session in list(islice(self._sessions.items(), _LOOKS)):
            if session.streams:
                self._sessions[key] = self._sessions.pop(key)
            elif session.seen < oldest or len(self._sessions) > MAX_CLIENTS:
                del self._sessions[key]
