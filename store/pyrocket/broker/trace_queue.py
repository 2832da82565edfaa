"""`TraceQueue`: records of the message trace that wait to be sent."""

import logging
import threading
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pyrocket.formats.record import Host
from pyrocket.formats.trace import MAX_BYTES, Trace, encode, trace_keys

MAX_PENDING = 10_000
"""Maximum records in memory."""

NO_HOST: Host = (b"", 0)

_log = logging.getLogger(__name__)


class TraceMessage(NamedTuple):
    """Records of one client that are sent together; `records` is their number.

    RocketMQ's tools show `host` as the client of the trace message.
    """

    host: Host
    body: bytes
    keys: list[str]
    records: int = 1


class TraceQueue:
    """A bounded queue. Adding never waits; records without room are dropped and counted.

    Records about messages of the trace topic itself are ignored. Safe to share between threads.

    Attributes:
        dropped: The number of records that were not stored.
    """

    def __init__(self, topic: str, whose: str, max_pending: int) -> None:
        """`whose` names the client or the broker in the log."""
        self._topic, self._whose, self._max = topic, whose, max_pending
        self._lock, self.dropped, self._pending = threading.Lock(), 0, list[TraceMessage]()

    def put(self, topic: str, record: Trace, host: Host = NO_HOST) -> None:
        """Add a record about a message of a topic."""
        if topic == self._topic:
            return
        body = encode(record).encode()
        with self._lock:
            has_room = len(self._pending) < self._max and len(body) <= MAX_BYTES
            if has_room:
                self._pending.append(TraceMessage(host, body, trace_keys(record)))
        if not has_room:
            self.drop(1)

    def take(self) -> list[TraceMessage]:
        """Remove all records; return the messages that contain them, in order for each host."""
        with self._lock:
            records, self._pending = self._pending, []
        by_host = groupby(sorted(records, key=attrgetter("host")), key=attrgetter("host"))
        return [_joined(part) for _, group in by_host for part in _parts(group)]

    def drop(self, count: int) -> None:
        """Count records that are not stored; the first ones are logged."""
        with self._lock:
            is_first, self.dropped = not self.dropped, self.dropped + count
        if is_first:
            _log.warning("message traces of %s were dropped", self._whose)


def _parts(records: Iterable[TraceMessage]) -> Iterator[list[TraceMessage]]:
    """Yield records together, as many as a message has room for."""
    part: list[TraceMessage] = []
    size = 0
    for record in records:
        if part and size + len(record.body) > MAX_BYTES:
            yield part
            part, size = [], 0
        part.append(record)
        size += len(record.body)
    yield part


def _joined(part: list[TraceMessage]) -> TraceMessage:
    keys = dict.fromkeys(key for record in part for key in record.keys)
    body = b"".join(record.body for record in part)
    return TraceMessage(part[0].host, body, [*keys], len(part))
