"""The clients that are connected: what each publishes, and the stream on which it can be asked.

A client is known from its first call on; its stream may open later, or be lost for minutes while
the client goes on sending.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

Key = tuple[str, str]
"""User and client id."""

MAX_COMMANDS = 64
"""That wait for a client; what has no room is not sent."""

_IDLE_S = 300
_ALIVE_S = 35
"""Clients call every ten seconds."""

MAX_CLIENTS = 10_000
"""Without a stream: more are forgotten, the one first that has not called for longest."""

MAX_TOPICS = 256
"""Of one client: of more, those are kept that it has published to last."""

_LOOKS = 4
"""Each call looks at so many clients, whether they are to be forgotten."""


class Stream:
    """The commands for one client, sent by the event loop. `offer` is for any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._room = MAX_COMMANDS
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """How many more commands it takes."""
        return self._room

    def offer(self, command: Any) -> bool:
        """Send a command, or None to end the stream; return False if too many are waiting."""
        with self._lock:
            if self._room <= 0 and command is not None:
                return False
            self._room -= 1
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, command)
        return True

    async def next(self) -> Any:
        """Return the next command; None is the end."""
        command = await self._waiting.get()
        with self._lock:
            self._room += 1
        return command


@dataclass
class Session:
    """One client.

    Attributes:
        language: Its name in `Language`, empty until the client has told.
        topics: Those that it publishes to, by its settings or by what it has sent; the last one is
            the one sent to last.
        group: The group that it consumes with.
        streams: Those that are open: one for each address that the client uses, the last one last.
        settings: The reply to its last settings, if it needs that once more.
        polls: Wake its parked polls.
        ended: Whether its streams and polls are to end.
    """

    key: Key
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
        """The stream that it opened last, None without one."""
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
        self._sessions: dict[Key, Session] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    def seen(self, key: Key) -> Session:
        """Return the session of a client that makes a call."""
        with self._lock:
            session = self._sessions.pop(key, None) or Session(key)
            session.seen, session.ended = time.monotonic(), self._closed
            self._sessions[key] = session  # The last one is the one seen last.
            self._expire()
        return session

    def find(self, key: Key) -> Session | None:
        """Return the session of a client, None for one that is not known."""
        return self._sessions.get(key)

    def sends_to(self, key: Key, topic: str) -> None:
        """Remember that a client sends to a topic: it says so itself only every five minutes."""
        self.publishes(self.seen(key), [topic])

    def publishes(self, session: Session, topics: Iterable[str]) -> None:
        """Note that a client publishes to these topics; of too many, the last ones are kept."""
        with self._lock:
            for topic in topics:
                session.topics.pop(topic, None)
                session.topics[topic] = None
            while len(session.topics) > MAX_TOPICS:
                del session.topics[next(iter(session.topics))]

    def connect(self, key: Key, stream: Stream) -> Session:
        """Use this stream for a client from now on."""
        session = self.seen(key)
        with self._lock:
            session.streams.append(stream)
        if self._closed:
            stream.offer(None)
        return session

    def disconnect(self, session: Session, stream: Stream) -> None:
        """Forget a stream that has ended."""
        with self._lock:
            session.streams.remove(stream)

    def end(self, key: Key) -> None:
        """Forget a client that is shutting down."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            session.end()

    def lives(self, key: Hashable) -> bool:
        """Whether a client is connected, or has called not long ago."""
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
        """Return the topics that clients with a stream publish to."""
        return {topic for one in self._all() if one.streams for topic in [*one.topics]}

    def producers(self, topic: str) -> list[Stream]:
        """Return the streams of the clients that publish to a topic."""
        return [one.streams[-1] for one in self._all() if one.streams and topic in one.topics]

    def _all(self) -> list[Session]:
        with self._lock:
            return [*self._sessions.values()]

    def _expire(self) -> None:
        """Forget clients that have no stream and have not called for a while.

        Those with a stream give way to the ones after them.
        """
        oldest = time.monotonic() - _IDLE_S
        for key, session in list(islice(self._sessions.items(), _LOOKS)):
            if session.streams:
                self._sessions[key] = self._sessions.pop(key)
            elif session.seen < oldest or len(self._sessions) > MAX_CLIENTS:
                del self._sessions[key]
